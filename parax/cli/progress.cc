#include "parax/cli/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "parax/base/text.h"

namespace parax {
namespace {

constexpr std::chrono::seconds kWindow{30};           // of the rate
constexpr std::chrono::milliseconds kRedraw{100};     // of the bar
constexpr std::chrono::seconds kLongestInterval{60};  // between plain lines
constexpr double kSmoothing = 0.98;                   // of loss and accuracy

Progress::Sink TerminalSink() {
  return {[](const std::string& text) {
            std::fwrite(text.data(), 1, text.size(), stderr);
            std::fflush(stderr);
          },
          [] { return std::chrono::steady_clock::now(); },
          [] {
            if (!isatty(STDERR_FILENO)) return 0;
            winsize size{};
            return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
                       ? static_cast<int>(size.ws_col)
                       : 80;
          }};
}

double SecondsBetween(Progress::Time from, Progress::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Progress::Progress(uint64_t total_steps, uint64_t first_step, double steps_per_epoch, bool quiet)
    : Progress(total_steps, first_step, steps_per_epoch, quiet, TerminalSink()) {}

Progress::Progress(uint64_t total_steps, uint64_t first_step, double steps_per_epoch, bool quiet,
                   Sink sink)
    : total_(total_steps),
      step_(first_step),
      steps_per_epoch_(steps_per_epoch),
      quiet_(quiet),
      sink_(std::move(sink)),
      first_step_(first_step) {
  marks_.push_back({sink_.now(), 0});
  drawn_ = marks_.back().time;
}

void Progress::Step(uint64_t step, double loss, double accuracy, int64_t images) {
  const double keep = step_ == first_step_ ? 0 : kSmoothing;
  step_ = step;
  loss_ = keep * loss_ + (1 - keep) * loss;
  accuracy_ = keep * accuracy_ + (1 - keep) * accuracy;
  images_ += images;
  marks_.push_back({sink_.now(), images_});
  while (marks_.size() > 2 && marks_.back().time - marks_.front().time > kWindow) {
    marks_.pop_front();
  }
  Draw(false);
}

double Progress::ImagesPerSecond() const {
  // The first step also fills caches and the input pipeline: not counted once there are others.
  const size_t from = marks_.size() > 2 && marks_.front().images == 0 ? 1 : 0;
  const double seconds = SecondsBetween(marks_[from].time, marks_.back().time);
  return seconds > 0 ? static_cast<double>(marks_.back().images - marks_[from].images) / seconds
                     : 0;
}

std::string Progress::Line(int columns) const {
  const double done = total_ == 0 ? 1 : static_cast<double>(step_) / static_cast<double>(total_);
  const double elapsed = SecondsBetween(marks_.front().time, marks_.back().time);
  const double steps = static_cast<double>(marks_.size() - 1);
  const double left = steps > 0 ? elapsed / steps * static_cast<double>(total_ - step_) : 0;
  std::string line = fmt::format(
      "epoch {:.2f}  step {}/{}  loss {:.4f}  accuracy {:.1f} %  {:.1f} images/s  {} left",
      static_cast<double>(step_) / steps_per_epoch_, step_, total_, loss_, 100 * accuracy_,
      ImagesPerSecond(), HumanTime(left));
  if (columns == 0) return line;
  const int room = columns - 1 - static_cast<int>(line.size()) - 3;
  if (room >= 5) {
    const int width = std::min(room, 30);
    const int full = static_cast<int>(std::lround(done * width));
    line = fmt::format("[{}{}] {}", std::string(static_cast<size_t>(full), '#'),
                       std::string(static_cast<size_t>(width - full), '.'), line);
  }
  return line.substr(0, static_cast<size_t>(std::max(0, columns - 1)));
}

void Progress::Draw(bool force) {
  if (quiet_) return;
  const Time now = marks_.back().time;
  const int columns = sink_.columns();
  if (columns == 0) {
    if (!force && now - drawn_ < interval_) return;
    sink_.write(Line(0) + "\n");
    interval_ = std::min(kLongestInterval, interval_ * 2);
  } else {
    if (!force && shown_ && now - drawn_ < kRedraw) return;
    sink_.write("\r\033[K" + Line(columns));
    shown_ = true;
  }
  drawn_ = now;
}

void Progress::Clear() {
  if (shown_) sink_.write("\r\033[K");
  shown_ = false;
}

void Progress::Finish() {
  if (quiet_ || step_ == first_step_) return;
  Draw(true);
  if (shown_) sink_.write("\n");
  shown_ = false;
}

}  // namespace parax
