#include "parax/cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

namespace parax {
namespace {

std::atomic<bool> exits{true}, signalled{false};
std::atomic<void (*)()> undo_before_exit{nullptr};
std::atomic<StopFlag*> stops{nullptr};

void OnStopSignal(int signal) {
  static std::atomic<int> interrupts{0};
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
  // Only an impatient Ctrl-C ends at once: job managers send several kinds of signals in a row.
  if (signal == SIGINT && interrupts.fetch_add(1) > 0) _exit(130);
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
