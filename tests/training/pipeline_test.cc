// Training on image files: decoding threads, instances and gradient server at work together.
#include "parax/data/pipeline.h"

#include <gtest/gtest.h>

#include "parax/engine/weights.h"
#include "parax/models/resnet.h"
#include "tests/training/training_harness.h"

namespace parax::test {
namespace {

TEST(TrainingTest, SameBitsFromFilesWhateverTheWorkers) {
  const Dataset data = OpenDataset(std::filesystem::path(PARAX_SOURCE_DIR) / "data" / "digits",
                                   {.keep_index = false});
  const Graph graph = BuildModel({.name = "resnet20", .classes = 10, .image_size = 16});
  TensorMap first;
  for (const int workers : {1, 3}) {
    TrainerOptions options = GradientOptions(2, data.val.size(), 32, 8, 10);
    options.learning_rate = [](uint64_t) { return 0.05; };
    Trainer trainer(graph, options);
    trainer.Load(InitTensors(graph, 3));
    PipelineOptions input;
    input.plan = options.train;
    input.workers = workers;
    input.transform.image_size = 16;
    input.transform.train = true;
    const auto source = MakeImagePipeline(data.val, input, trainer.stop());
    const TrainEnd end = trainer.Train(
        6, *source, [](const StepReport&) {}, [] { return false; });
    ASSERT_EQ(end.outcome, Outcome::kOk) << end.reason;
    const TensorMap weights = trainer.Weights();
    if (first.empty()) first = weights;
    for (const auto& [name, tensor] : weights) {
      EXPECT_EQ(tensor.values, first.at(name).values) << name;
    }
  }
}

}  // namespace
}  // namespace parax::test
