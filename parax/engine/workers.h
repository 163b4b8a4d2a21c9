#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "parax/base/sequence.h"
#include "parax/numa/seat.h"

namespace parax {

// The leaves' threads: one a seat, bound to it, alive as long as the object. They run one job at a
// time, all together; each job is a call with the leaf's number.
class Workers {
 public:
  // Returns when everybody is on its seat; throws what kept one from it.
  explicit Workers(std::vector<Seat> seats);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void Start(std::function<void(int leaf)> job);  // one at a time
  void Wait();                                    // rethrows the exception of the lowest leaf
  void Run(std::function<void(int leaf)> job) {
    Start(std::move(job));
    Wait();
  }

  int size() const { return static_cast<int>(seats_.size()); }
  const Seat& seat(int leaf) const { return seats_[static_cast<size_t>(leaf)]; }
  bool bound() const { return bound_; }  // false: the OS refused to bind some thread

 private:
  void Loop(int leaf);
  void Quit();  // ends and joins the threads

  std::vector<Seat> seats_;
  std::function<void(int)> job_;
  StopFlag never_;  // waits here end only by their value
  uint64_t jobs_ = 0;
  Sequence posted_;
  std::vector<Sequence> done_;
  std::vector<std::exception_ptr> errors_;
  std::atomic<bool> bound_{true};
  bool quit_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace parax
