#include "parax/cli/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace parax {
namespace {

constexpr int64_t kOnePress = 500;  // milliseconds within which two SIGINT are one

std::atomic<bool> exits{true}, signalled{false};
std::atomic<void (*)()> undo_before_exit{nullptr};
std::atomic<StopFlag*> stops{nullptr};

void OnStopSignal(int signal) {
  static std::atomic<int64_t> first_interrupt{0};
  static std::atomic<bool> exiting{false};
  if (exits.load()) {
    if (exiting.exchange(true)) return;  // another thread is about it
    if (void (*undo)() = undo_before_exit.load()) undo();
    constexpr std::string_view kLine = "interrupted\n";
    (void)!write(STDERR_FILENO, kLine.data(), kLine.size());
    _exit(130);
  }
  signalled.store(true);
  if (StopFlag* flag = stops.load()) flag->Request();
  // Only an impatient Ctrl-C ends at once. Job managers send several kinds of signals in a row, and
  // `timeout -s INT` the same one twice, to the program and to its group.
  if (signal != SIGINT) return;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  int64_t first = 0;
  if (!first_interrupt.compare_exchange_strong(first, ms) && ms - first >= kOnePress) _exit(130);
}

}  // namespace

void ExitOnStopSignals(void (*undo)()) {
  undo_before_exit.store(undo);
  exits.store(true);
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);  // the connection was lost
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

void NoteStopSignals() { exits.store(false); }

bool StopSignalled() { return signalled.load(); }

StopOnSignal::StopOnSignal(StopFlag& flag) {
  stops.store(&flag);
  if (StopSignalled()) flag.Request();  // it came before
}

StopOnSignal::~StopOnSignal() { stops.store(nullptr); }

}  // namespace parax
