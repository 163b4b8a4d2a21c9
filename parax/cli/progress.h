#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace parax {

// Shows how training gets on, on standard error: a bar on a terminal, a plain line now and then on
// a pipe, nothing when quiet.
class Progress {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Sink {  // replaced by tests
    std::function<void(const std::string&)> write;
    std::function<Time()> now;
    std::function<int()> columns;  // 0: not a terminal
  };

  Progress(uint64_t total_steps, uint64_t first_step, double steps_per_epoch, bool quiet);
  Progress(uint64_t total_steps, uint64_t first_step, double steps_per_epoch, bool quiet,
           Sink sink);

  // `accuracy`: of the step's batch, 0 .. 1.
  void Step(uint64_t step, double loss, double accuracy, int64_t images);
  void Clear();   // makes room for a log line; the bar comes back with the next step
  void Finish();  // leaves the last state on the screen
  double ImagesPerSecond() const;  // over the last half minute

 private:
  struct Mark {
    Time time;
    int64_t images;  // since the beginning
  };
  std::string Line(int columns) const;
  void Draw(bool force);

  uint64_t total_, step_;
  double steps_per_epoch_;
  bool quiet_, shown_ = false;
  Sink sink_;
  int64_t images_ = 0;
  double loss_ = 0, accuracy_ = 0;  // exponential averages
  std::deque<Mark> marks_;
  Time drawn_{};
  uint64_t drawn_step_ = 0;
  std::chrono::seconds interval_{2};  // between plain lines; grows
  uint64_t first_step_;
};

}  // namespace parax
