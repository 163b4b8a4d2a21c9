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
constexpr int kLeastBar = 5, kMostBar = 30;           // columns

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
  // A plain mean at first, so that the first steps do not weigh on the average for long.
  const double before = static_cast<double>(step_ - first_step_);
  const double keep = std::min(kSmoothing, before / (before + 1));
  step_ = step;
  if (!std::isfinite(loss_)) loss_ = loss;  // one bad step must pass
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
  const double elapsed = SecondsBetween(marks_.front().time, marks_.back().time);
  const double steps = static_cast<double>(marks_.size() - 1);
  const uint64_t ahead = total_ - std::min(step_, total_);
  const double epoch = static_cast<double>(step_) / steps_per_epoch_;
  const std::string left =
      HumanTime(steps > 0 ? elapsed / steps * static_cast<double>(ahead) : 0) + " left";
  std::string line =
      fmt::format("epoch {:.2f}  step {}/{}  loss {:.4f}  accuracy {:.1f} %  {:.1f} images/s  {}",
                  epoch, step_, total_, loss_, 100 * accuracy_, ImagesPerSecond(), left);
  if (columns == 0) return line;
  const int most = std::max(0, columns - 1);  // the last column would wrap on some terminals
  const auto room = [&] { return most - static_cast<int>(line.size()) - 3; };
  if (room() < kLeastBar) {  // the usual 80 columns: a bar and the time left before words
    line = fmt::format("{:.1f} ep {}/{} loss {:.3f} acc {:.1f}% {:.0f} img/s {}", epoch, step_,
                       total_, loss_, 100 * accuracy_, ImagesPerSecond(), left);
  }
  if (room() < kLeastBar) {
    line = fmt::format("{}/{} loss {:.3f} {}", step_, total_, loss_, left);
  }
  if (room() >= kLeastBar) {
    const int width = std::min(room(), kMostBar);
    const double done =
        total_ == 0 ? 1 : 1 - static_cast<double>(ahead) / static_cast<double>(total_);
    const int full = static_cast<int>(done * width);  // full only at the end
    line = fmt::format("[{:#>{}}{:.>{}}] {}", "", full, "", width - full, line);
  }
  return line.substr(0, static_cast<size_t>(most));
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
  drawn_step_ = step_;
}

void Progress::Clear() {
  if (shown_) sink_.write("\r\033[K");
  shown_ = false;
}

void Progress::Finish() {
  if (quiet_ || step_ == first_step_) return;
  // A pipe that has just been told of the last step need not be told twice.
  if (step_ != drawn_step_ || sink_.columns() > 0) Draw(true);
  if (shown_) sink_.write("\n");
  shown_ = false;
}

}  // namespace parax
