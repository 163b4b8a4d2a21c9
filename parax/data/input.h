#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "parax/base/outcome.h"
#include "parax/base/stop.h"
#include "parax/data/sampler.h"

namespace parax {

// What one instance takes through the network at once. The memory belongs to the source and stays
// as it is until Release(). Images are float32, NHWC, normalised.
struct MicroBatch {
  const float* images = nullptr;         // count x height x width x channels
  const int32_t* labels = nullptr;       // count
  const float* probabilities = nullptr;  // count x classes when the source mixes labels, else null
  const int64_t* sample_ids = nullptr;   // count; the sample's number in the data set
  int64_t count = 0;
};

// Where instances get their input from. One per run; each leaf calls from its own thread.
class InputSource {
 public:
  virtual ~InputSource() = default;
  // The leaf's next micro-batch in the order of (epoch, iteration, micro). Blocks in a named wait
  // until it is decoded. Behind the last one: a micro-batch of count 0. Hot: no allocation, no
  // lock.
  virtual Outcome Acquire(int leaf, MicroBatch& batch) noexcept = 0;
  // Gives the micro-batch acquired last back to be refilled. Hot.
  virtual void Release(int leaf) noexcept = 0;

  // Why the source failed, in one line; empty when it did not. Setup code only.
  virtual std::string ErrorLine() const { return {}; }
};

}  // namespace parax
