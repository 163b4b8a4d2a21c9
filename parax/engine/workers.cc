#include "parax/engine/workers.h"

#include <system_error>

#include "parax/base/error.h"

namespace parax {
namespace {
constexpr Clock::duration kForever = std::chrono::hours(24 * 365 * 10);
}

Workers::Workers(std::vector<Seat> seats)
    : seats_(std::move(seats)), done_(seats_.size()), errors_(seats_.size()) {
  try {
    for (size_t leaf = 0; leaf < seats_.size(); ++leaf) {
      threads_.emplace_back([this, leaf] { Loop(static_cast<int>(leaf)); });
    }
    Run([this](int leaf) {
      if (!EnterSeat(seat(leaf))) bound_ = false;
    });
  } catch (const std::system_error& error) {
    Quit();
    Fail("cannot start thread {} of {}: {}", threads_.size() + 1, seats_.size(), error.what());
  } catch (...) {
    Quit();
    throw;
  }
}

Workers::~Workers() { Quit(); }

void Workers::Quit() {
  quit_ = true;
  posted_.Publish(++jobs_);
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Loop(int leaf) {
  const size_t index = static_cast<size_t>(leaf);
  for (uint64_t job = 1;; ++job) {
    (void)posted_.Wait(job, never_, kForever, {"next job"});
    if (quit_) return;
    try {
      job_(leaf);
    } catch (...) {
      errors_[index] = std::current_exception();
    }
    done_[index].Publish(job);
  }
}

void Workers::Start(std::function<void(int)> job) {
  job_ = std::move(job);
  for (std::exception_ptr& error : errors_) error = nullptr;
  posted_.Publish(++jobs_);
}

void Workers::Wait() {
  for (const Sequence& done : done_) (void)done.Wait(jobs_, never_, kForever, {"leaf"});
  for (const std::exception_ptr& error : errors_) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace parax
