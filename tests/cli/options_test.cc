#include "parax/cli/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "parax/base/file.h"
#include "parax/cli/commands.h"
#include "parax/cli/flags_internal.h"
#include "tests/cli/program.h"

namespace parax {
namespace {

using testing::ErrorOf;
using testing::Holds;

Options Parse(std::vector<std::string> words) {
  std::vector<const char*> argv = {"parax"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto options = ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  if (!options) throw Error("nothing to do");
  CheckValues(*options);
  return *options;
}

// The message when parsing is refused, which must be as a usage error.
std::string Refused(std::vector<std::string> words) {
  return ErrorOf([&] {
    try {
      Parse(words);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      ADD_FAILURE() << "not a usage error: " << error.what();
    }
  });
}

TEST(CommandLine, TakesAliases) {
  const Options o = Parse({"train",
                           "-m",
                           "resnet18",
                           "-d",
                           "x",
                           "-b",
                           "12",
                           "--opt",
                           "adamw",
                           "--learning-rate",
                           "0.5",
                           "--sched",
                           "linear",
                           "--clip-grad",
                           "2",
                           "--smoothing",
                           "0.1",
                           "--wd",
                           "0.25",
                           "-j",
                           "3",
                           "--img-size=64",
                           "--color-jitter",
                           "0.4",
                           "0.3",
                           "-e",
                           "2",
                           "-q"});
  EXPECT_EQ(o.model, "resnet18");
  EXPECT_EQ(o.data, "x");
  EXPECT_EQ(o.batch, 12);
  EXPECT_EQ(o.optimizer, "adamw");
  EXPECT_EQ(o.lr, 0.5);
  EXPECT_EQ(o.lr_schedule, "linear");
  EXPECT_EQ(o.clip_norm, 2);
  EXPECT_EQ(o.label_smoothing, 0.1);
  EXPECT_EQ(o.weight_decay, 0.25);
  EXPECT_EQ(o.workers, 3);
  EXPECT_EQ(o.image_size, 64);
  EXPECT_EQ(o.colour_jitter, (std::vector<double>{0.4, 0.3}));
  EXPECT_EQ(o.epochs, 2);
  EXPECT_TRUE(o.quiet);
  EXPECT_EQ(Parse({"train", "--batch-size", "9"}).batch, 9);
  EXPECT_EQ(Parse({"train", "--batch", "8", "-b", "9"}).batch, 9) << "the last one counts";
  EXPECT_FALSE(Parse({"train", "--nesterov=false"}).nesterov);
  EXPECT_TRUE(Parse({"train", "--nesterov"}).nesterov);
}

TEST(CommandLine, TakesResumeWithAndWithoutAValue) {
  EXPECT_EQ(Parse({"train"}).resume, std::nullopt);
  EXPECT_EQ(Parse({"train", "--resume", "--out", "r"}).resume, "");
  EXPECT_EQ(Parse({"train", "--out", "r", "--resume"}).resume, "");
  EXPECT_EQ(Parse({"train", "--resume", "auto"}).resume, "auto");
  EXPECT_EQ(Parse({"train", "--resume=runs/x"}).resume, "runs/x");
}

TEST(CommandLine, NamesTheNearestOfAnUnknownFlag) {
  EXPECT_EQ(Refused({"train", "--epoch", "3"}),
            "train: unknown flag '--epoch'; did you mean --epochs?");
  EXPECT_TRUE(Holds(Refused({"train", "--weightdecay=1"}), "did you mean --weight-decay?"));
  EXPECT_TRUE(Holds(Refused({"predict", "--model", "m", "--tops", "3", "a.jpg"}), "--top?"));
  EXPECT_TRUE(Holds(Refused({"eval", "--lr", "1"}), "unknown flag '--lr'")) << "train's alone";
  EXPECT_TRUE(Holds(Refused({"train", "photos"}), "unexpected 'photos'"));
  EXPECT_TRUE(Holds(Refused({"trian"}), "did you mean 'train'?"));
  EXPECT_TRUE(Holds(Refused({"train", "--data"}), "--data"));
  EXPECT_EQ(Refused({"train", "--gpus"}), "train: unknown flag '--gpus' (see parax train --help)");
  EXPECT_EQ(Parse({"predict", "--model", "m", "--", "-x.jpg", "--y.jpg"}).inputs,
            (std::vector<std::string>{"-x.jpg", "--y.jpg"}));
}

TEST(CommandLine, NamesTheNearestOfAnUnknownName) {
  EXPECT_TRUE(Holds(Refused({"train", "--model", "resnet19"}), "resnet18"));
  EXPECT_TRUE(Holds(Refused({"train", "--optimizer", "adamv"}), "adam"));
  EXPECT_TRUE(Holds(Refused({"train", "--lr-schedule", "cosin"}), "cosine"));
  EXPECT_TRUE(Holds(Refused({"train", "--best-metric", "acc"}), "accuracy, loss"));
  EXPECT_TRUE(Holds(Refused({"train", "--layout", "nchw"}), "nhwc"));
  EXPECT_TRUE(Holds(Refused({"train", "--precision", "bf16"}), "fp32"));
}

// A value that was forgotten is never made up of what stands behind it.
TEST(CommandLine, TakesNoFlagForAValue) {
  const std::vector<std::vector<std::string>> wrong = {
      {"train", "--out=", "x"},       {"train", "--out", ""},    {"train", "--out", "--quiet"},
      {"train", "--lr", "--quiet"},   {"train", "--out", "-q"},  {"train", "--freeze", "--quiet"},
      {"predict", "--out=", "a.jpg"}, {"train", "--nesterov="},  {"train", "--resume="},
      {"train", "--resume", ""},      {"train", "--config="},    {"train", "--config", ""},
      {"train", "--nesterov=maybe"},  {"train", "--nesterov=2"}, {"train", "--nesterov=-5"},
      {"train", "--quiet=yes"}};
  for (const std::vector<std::string>& words : wrong) {
    const std::string flag = words[1].substr(0, words[1].find('='));
    EXPECT_TRUE(Refused(words).starts_with(flag + " is ")) << Refused(words);
  }
  EXPECT_TRUE(Holds(Refused({"train", "--nesterov=maybe"}), "true or false"));
  EXPECT_TRUE(Holds(Refused({"train", "--config", "a", "--config", "b"}), "--config is given 2"));
  EXPECT_TRUE(Holds(Refused({"train", "--data", "-5", "--lr", "-5"}), "--lr is -5"));
}

TEST(CommandLine, TellsWhatHasNoEffect) {
  const auto lines = [](std::vector<std::string> words) {
    words.insert(words.begin(), "train");
    return WithoutEffect(Parse(words));
  };
  EXPECT_EQ(lines({"--lr-steps", "3", "--nesterov", "--momentum", "0.8", "--flip", "0"}),
            std::vector<std::string>{"--lr-steps has no effect without --lr-schedule step"});
  EXPECT_EQ(lines({"--opt", "adamw", "--nesterov", "--beta2", "0.99"}),
            std::vector<std::string>{"--nesterov has no effect without --optimizer sgd"});
  EXPECT_EQ(lines({"--crop", "pad", "--scale", "0.1", "1"}),
            std::vector<std::string>{"--scale has no effect without --crop random-resized"});
  EXPECT_TRUE(lines({"--sched", "step", "--lr-steps", "3", "--lr-gamma", "0.5"}).empty());
  EXPECT_TRUE(lines({"--opt", "lars", "--trust", "0.1", "--momentum", "0.9"}).empty());
}

TEST(CommandLine, TakesOnlyNumbersForNumbers) {
  for (const char* wrong : {"abc", "nan", "inf", "-inf", "0.1x", "1e999", "0,1", "-0.1"}) {
    const std::string message = Refused({"train", "--lr", wrong});
    EXPECT_TRUE(Holds(message, "--lr is") && Holds(message, wrong)) << wrong << ": " << message;
  }
  for (const char* wrong : {"abc", "1.5", "-1", "0", "99999999999999999999"}) {
    EXPECT_TRUE(Holds(Refused({"train", "--batch", wrong}), "--batch is")) << wrong;
    EXPECT_TRUE(Holds(Refused({"train", "--max-steps", wrong}), "--max-steps is")) << wrong;
  }
  EXPECT_TRUE(Holds(Refused({"train", "--seed", "-1"}), "0 or more"));
}

TEST(CommandLine, RefusesValuesThatCannotBe) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--momentum", "1"},
      {"--momentum", "-0.5"},
      {"--ema", "1.5"},
      {"--flip", "2"},
      {"--label-smoothing", "1"},
      {"--dropout", "-1"},
      {"--keep", "0"},
      {"--patience", "-1"},
      {"--instances", "-1"},
      {"--workers", "-2"},
      {"--epochs", "0"},
      {"--image-size", "0"},
      {"--image-size", "-3"},
      {"--scale", "0.5"},
      {"--scale", "0.5", "0.2"},
      {"--scale", "0", "1"},
      {"--ratio", "1"},
      {"--clip-norm", "-1"},
      {"--val-split", "1"},
      {"--classes", "-3"},
      {"--cores-per-instance", "0"},
      {"--mixup", "-1"},
      {"--normalise", "imagine"},
      {"--crop", "centre"},
      {"--pad", "-1"},
      {"--bn-group", "0"},
      {"--colour-jitter", "0.1", "-1"},
      {"--colour-jitter", "0", "0", "0", "0.6"},
      {"--lr-steps", "3", "-1"},
      {"--epsilon", "0"},
      {"--trust", "-1"},
      {"--warmup", "5m"},
      {"--batch", "9223372036854775807"},
      {"--image-size", "5000"},
      {"--lr-schedule", "step"},
      {"--clip-norm", "1", "--update-policy", "eager"},
      {"--gate", "-1"},
      {"--defer-memory", "1.5"},
      {"--defer-memory", "nan"},
      {"--schedule-policy", "barriered", "--cores-per-instance", "2"},
      {"--nesterov", "--momentum", "0"}};
  for (std::vector<std::string> words : wrong) {
    const std::string flag = words[0];
    words.insert(words.begin(), "train");
    const std::string message = Refused(words);
    EXPECT_TRUE(Holds(message, flag == "--normalise" ? "imagine" : flag + " ")) << flag << message;
  }
}

TEST(Spans, TakeStepsEpochsPercentAndTimes) {
  const auto is = [](const std::string& text, double value, Span::Unit unit) {
    const Span span = ParseSpan(text, "warmup");
    return span.value == value && span.unit == unit;
  };
  EXPECT_TRUE(is("500", 500, Span::Unit::kSteps));
  EXPECT_TRUE(is("0", 0, Span::Unit::kSteps));
  EXPECT_TRUE(is("2ep", 2, Span::Unit::kEpochs));
  EXPECT_TRUE(is("0.5ep", 0.5, Span::Unit::kEpochs));
  EXPECT_TRUE(is("6%", 6, Span::Unit::kPercent));
  EXPECT_TRUE(is("10m", 600, Span::Unit::kSeconds));
  EXPECT_TRUE(is("30s", 30, Span::Unit::kSeconds));
  EXPECT_TRUE(is("2h", 7200, Span::Unit::kSeconds));
  for (const char* wrong : {"ep", "%", "1.5", "-5", "-2ep", "nanep", "inf%", "5 ep", "5epp"}) {
    EXPECT_TRUE(Holds(Refused({"train", "--save-every", wrong}), "--save-every is")) << wrong;
  }
}

TEST(ConfigFile, LiesUnderTheCommandLine) {
  testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "c.toml").string();
  WriteFileAtomically(
      file,
      "\xEF\xBB\xBF# a comment\r\nmodel = 'resnet34'  # another\n\"lr\" = 0.5\nfreeze = [\n"
      "  \"conv1\", # inside\n  'layer1',\n]\nnesterov = true\nbatch-size = 24\n");
  const Options o = Parse({"train", "--lr", "0.25", "--config", file});
  EXPECT_EQ(o.model, "resnet34");
  EXPECT_EQ(o.lr, 0.25);
  EXPECT_EQ(o.freeze, (std::vector<std::string>{"conv1", "layer1"}));
  EXPECT_TRUE(o.nesterov);
  EXPECT_EQ(o.batch, 24);
  EXPECT_TRUE(o.given.contains("model") && o.given.contains("batch"));
  EXPECT_FALSE(Parse({"train", "--config=" + file, "--nesterov=false"}).nesterov);
}

TEST(ConfigFile, NamesFileLineAndTheNearestKey) {
  const auto refused = [](const std::string& text) {
    return ErrorOf([&] { FromToml(text, "c.toml"); });
  };
  EXPECT_EQ(refused("seed = 1\n\nepoch = 3\n"),
            "c.toml:3: unknown key 'epoch'; did you mean epochs?");
  EXPECT_TRUE(Holds(refused("lr = \"high\"\n"), "c.toml:1: --lr is 'high'"));
  EXPECT_TRUE(Holds(refused("lr = [0.1, 0.2]"), "c.toml:1: 'lr' takes one value"));
  EXPECT_TRUE(Holds(refused("lr = 0.1\nlr = 0.2"), "c.toml:2: 'lr' is there twice"));
  EXPECT_TRUE(Holds(refused("wd = 0.1\nweight-decay = 0.2"), "'weight-decay' is there twice"));
  EXPECT_TRUE(Holds(refused("[optimizer]\nlr = 1"), "c.toml:1: sections"));
  EXPECT_TRUE(Holds(refused("model = resnet18"), "quotes: \"resnet18\""));
  EXPECT_TRUE(Holds(refused("model = \"resnet18"), "c.toml:1: a text has no closing"));
  EXPECT_TRUE(Holds(refused("model"), "expected key = value"));
  EXPECT_TRUE(Holds(refused("lr ="), "'lr' has no value"));
  EXPECT_TRUE(Holds(refused("lr = 1 2"), "more stands behind"));
  EXPECT_TRUE(Holds(refused("freeze = [\"a\"\n\n"), "c.toml:3: expected , or ]"));
  EXPECT_TRUE(Holds(refused("data = \"C:\\data\""), "a backslash is written"));
  EXPECT_TRUE(Holds(refused("resume = \"auto\""), "belongs on the command line"));
  EXPECT_TRUE(Holds(refused("nesterov = 1"), "true or false"));
  EXPECT_TRUE(Holds(refused("scale = []"), "c.toml:1: 'scale' is empty"));
  EXPECT_TRUE(Holds(refused("crop = ''"), "'crop' is empty"));
}

// Every flag, set to something that is not its default, comes back from its config file.
TEST(ConfigFile, BringsBackEveryFlag) {
  const std::string nasty = "a \"b\" 'c' \\d # e = [f], {}\t\n\x01 é";
  const std::vector<std::vector<std::string>> candidates = {
      {"true"}, {"false"}, {"3ep"}, {"0.1234567890123456789"}, {"7"}, {nasty}, {nasty, "x"}};
  Options all;
  all.command = "train";
  std::set<std::string> names;
  for (const Flag& flag : Flags()) {
    for (const std::string& name : flag.names) {
      if (flag.commands & kTrain) {
        EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
      }
    }
    if (!(flag.commands & kTrain) || !flag.toml) continue;
    Options one;
    one.command = "train";
    const std::string before = ToToml(one);
    bool changed = false;
    for (const auto& values : candidates) {
      if (values.size() > 1 && !flag.list) continue;
      try {
        flag.set(one, values);
      } catch (const UsageError&) {
        continue;
      }
      flag.set(all, values);
      changed = changed || ToToml(one) != before;
      EXPECT_EQ(ToToml(FromToml(ToToml(one), "c.toml")), ToToml(one)) << flag.names[0];
    }
    EXPECT_TRUE(changed) << flag.names[0];
  }
  EXPECT_EQ(ToToml(FromToml(ToToml(all), "c.toml")), ToToml(all));
  EXPECT_EQ(FromToml(ToToml(all), "c.toml").data, nasty);
  EXPECT_TRUE(FromToml(ToToml(all), "c.toml").given.empty());
}

// docs/cli.md has a row for each flag: its names, its value, its commands.
TEST(Documentation, ListsEveryFlag) {
  std::set<std::string> expected, rows;
  for (const Flag& flag : Flags()) {
    std::string row = "| ";
    // The long name first, as the config file's key.
    for (const std::string& name : flag.names) {
      row +=
          (row.size() > 2 ? ", `" : "`") + std::string(name.size() == 1 ? "-" : "--") + name + "`";
    }
    row += " | " + flag.value + (flag.value.empty() ? "| " : " | ");
    for (const Command& command : Commands()) {
      if (flag.commands & command.bit) row += std::string(command.name) + " ";
    }
    expected.insert(row + "| ");
  }
  std::ifstream page(PARAX_SOURCE_DIR "/docs/cli.md");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `-")) continue;
    size_t end = 0;
    for (int bar = 0; bar < 4; ++bar) end = line.find('|', end) + 1;
    rows.insert(line.substr(0, end + 1));
    EXPECT_GT(line.size(), end + 5) << "says nothing: " << line;
  }
  EXPECT_EQ(rows, expected);
}

TEST(ShellWord, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(ShellWord("runs/a-1.5"), "runs/a-1.5");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("my photos"), "'my photos'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord("it's\n\\ \x1B"), "$'it\\'s\\n\\\\ \\x1b'");
  EXPECT_EQ(Parse({"train", "--data", "my photos"}).command_line, "parax train --data 'my photos'");
}

}  // namespace
}  // namespace parax
