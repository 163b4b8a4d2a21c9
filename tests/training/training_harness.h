#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "parax/engine/trainer.h"

namespace parax::test {

// Where the shared test data lies: PARAX_DATA, or ../shared/data beside the source folder.
inline std::filesystem::path DataFolder() {
  if (const char* folder = std::getenv("PARAX_DATA")) return folder;
  return std::filesystem::path(PARAX_SOURCE_DIR).parent_path() / "shared" / "data";
}

// A few images held in memory, given out as a BatchPlan says, epoch after epoch, unshuffled.
class FixedSource : public InputSource {
 public:
  FixedSource(BatchPlan plan, int64_t image_floats, std::vector<float> images,
              std::vector<int32_t> labels);
  Outcome Acquire(int leaf, MicroBatch& batch) noexcept override;
  void Release(int) noexcept override {}

 private:
  BatchPlan plan_;
  int64_t image_floats_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
  std::vector<int64_t> ids_;
  struct alignas(64) Cursor {
    int64_t iteration = 0;
    int micro = 0;
  };
  std::vector<Cursor> cursors_;
};

// NCHW to NHWC.
std::vector<float> ChannelsLast(const std::vector<float>& nchw, int64_t n, int64_t c, int64_t h,
                                int64_t w);

// `n` unbound seats of one thread each, over `domains` simulated domains.
std::vector<Seat> UnboundSeats(int n, int domains = 1);

// Options for `n` instances; SGD whose momentum buffer after the first iteration is the gradient.
TrainerOptions GradientOptions(int n, int64_t samples, int64_t batch, int64_t micro_batch,
                               int64_t classes);

// Largest excess of ||d|| over 1e-4 ||g|| + 1e-7 ||all g|| as a ratio (<= 1 is right), over all
// tensors of `expected`; `worst` names the tensor.
double WorstError(const TensorMap& found, const TensorMap& expected, std::string& worst);

}  // namespace parax::test
