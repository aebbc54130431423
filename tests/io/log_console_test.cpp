// SPDX-License-Identifier: Apache-2.0
// Console logs of training libraries. tests/assets/logs has lines as the format strings of each library make them.
#include "gnmr/io/log_console.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::error_in;
using testing::kInf;
using testing::kNan;
using testing::kNone;
using testing::read_text;
using testing::Row;
using testing::Trace;
using Names = std::vector<std::string>;
using Rows = std::vector<Row>;

std::string fixture(const std::string& name) {
  const std::string path = std::string(GNMR_TEST_ASSETS_DIR) + "/logs/" + name;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string with_crlf(const std::string& text) {
  std::string out;
  for (const char character : text) out += character == '\n' ? "\r\n" : std::string(1, character);
  return out;
}

// As it is, by its name, and with line ends of Windows.
void expect_read(const std::string& name, TraceFormat format, const Names& units, const Rows& rows,
                 const Names& notes = {}) {
  const std::string text = fixture(name);
  for (const Trace& trace :
       {read_text(text), read_text(text, {.format = format}), read_text(with_crlf(text), {.format = format})}) {
    EXPECT_EQ(trace.units, units) << name;
    EXPECT_EQ(trace.rows, rows) << name;
    EXPECT_EQ(trace.notes, notes) << name;
  }
}

const Names kGradNorm{"grad_norm"};
const Names kNumbered{"this log does not number its steps: its lines with a gradient norm are numbered from 1"};

TEST(ConsoleLogs, Torchtitan) {
  const Rows rows{{1, {1.5312}}, {10, {14.25}}, {20, {kNan}}};
  expect_read("torchtitan_plain.log", TraceFormat::torchtitan, kGradNorm, rows);
  expect_read("torchtitan_colour.log", TraceFormat::torchtitan, kGradNorm, rows);
  expect_read("torchtitan_ranks.log", TraceFormat::torchtitan, kGradNorm, rows,
              {"3 lines of other ranks left out; rank 0 counts"});
}

TEST(ConsoleLogs, HuggingFaceAndAxolotl) {
  expect_read("hf_trainer.log", TraceFormat::hf_console, kGradNorm, {{1, {0.9123}}, {2, {17.5}}, {3, {kNan}}},
              kNumbered);
  expect_read("axolotl.log", TraceFormat::hf_console, kGradNorm, {{1, {0.9123}}, {2, {17.5}}, {3, {kNan}}}, kNumbered);
}

TEST(ConsoleLogs, HuggingFaceValuesAsPythonPrintsThem) {
  const Trace trace = read_text(
      "{'loss': 1.0, 'grad_norm': tensor(2.5, device='cuda:0'), 'epoch': 0.1}\n"
      "{'loss': 1.0, 'note': 'a, {b}', 'grad_norm': np.float64(3.5), 'epoch': 0.2}\n"
      "{'loss': 1.0, 'list': [1, {'grad_norm': 9}], 'grad_norm': 'inf', 'epoch': 0.3}\n"
      "{'loss': 1.0, 'grad_norm': None, 'epoch': 0.4}\n"
      "{'loss': 1.0, 'grad_norm': 4.");
  EXPECT_EQ(trace.rows, (Rows{{1, {2.5}}, {2, {3.5}}, {3, {kInf}}}));
  EXPECT_EQ(trace.notes.size(), 3U);
  EXPECT_EQ(read_text("{'loss': 1.0, 'grad_norm': 2.5, 'step': 40}\n").rows, (Rows{{40, {2.5}}}));
}

TEST(ConsoleLogs, HuggingFaceRunThatWasResumed) {
  const auto entry = [](const char* norm, const char* epoch) {
    return std::string("{'loss': 1.0, 'grad_norm': ") + norm + ", 'epoch': " + epoch + "}\n";
  };
  const std::string text = entry("1", "0.1") + entry("2", "0.2") + entry("3", "0.3") + entry("4", "0.2");
  EXPECT_NE(error_in(text).find("line 4: step 2 of \"grad_norm\" does not come after step 3"), std::string::npos);
  EXPECT_EQ(read_text(text, {.allow_restart = true}).rows, (Rows{{1, {1}}, {2, {4}}}));
}

TEST(ConsoleLogs, NemoLinesAndBars) {
  expect_read("nemo_printer.log", TraceFormat::nemo, kGradNorm, {{0, {1.531}}, {1, {14.25}}, {2, {kNan}}});
  // The bar is drawn with the numbers of the step before, and drawn again; the last one has no end.
  expect_read("nemo_bar.log", TraceFormat::nemo, kGradNorm, {{0, {1.53}}, {1, {14.2}}, {2, {kNan}}},
              {"2 steps had no gradient norm", "1 gradient norm cut short left out"});
}

TEST(ConsoleLogs, BarsCountOnOverEpochs) {
  const Trace trace = read_text(
      "\rEpoch 0:  50%|#####     | 1/2 [00:01<00:01,  1.0it/s, v_num=0, grad_norm=1.000]"
      "\rEpoch 0: 100%|##########| 2/2 [00:02<00:00,  1.0it/s, v_num=0, grad_norm=2.000]\n"
      "\rEpoch 1:  50%|#####     | 1/2 [00:01<00:01,  1.0it/s, v_num=0, grad_norm=3.000]\n");
  EXPECT_EQ(trace.rows, (Rows{{1, {1}}, {2, {2}}, {3, {3}}}));
}

TEST(ConsoleLogs, DeepSpeed) {
  const std::string message = error_in(fixture("deepspeed.log"));
  EXPECT_EQ(message.find("run: no gradient norms in this DeepSpeed log; it has: step, skipped, lr, mom"), 0U)
      << message;
  EXPECT_NE(message.find("engine.get_global_grad_norm()"), std::string::npos) << message;
  expect_read("deepspeed_norm.log", TraceFormat::deepspeed, kGradNorm, {{10, {1.5312}}, {20, {14.25}}, {30, {kNan}}});
  // What runs on top of it prints the norm.
  EXPECT_EQ(read_text(fixture("deepspeed_megatron.log")).units, (Names{"grad norm"}));
  EXPECT_EQ(read_text(fixture("deepspeed.log") + fixture("hf_trainer.log")).rows.size(), 3U);
}

TEST(ConsoleLogs, Nanotron) {
  expect_read("nanotron.log", TraceFormat::nanotron, kGradNorm,
              {{1, {0.0215}}, {2, {1.53}}, {3, {14300}}, {4, {kNan}}, {5, {kInf}}});
}

TEST(ConsoleLogs, Olmo) {
  expect_read("olmo.log", TraceFormat::olmo, {"optim/total_grad_norm"}, {{1, {0.7512}}, {2, {2345}}, {3, {kNan}}});
  expect_read("olmo_core.log", TraceFormat::olmo, {"optim/total grad norm"},
              {{1, {0.7512}}, {2, {2.345e9}}, {3, {kInf}}});
}

const Names kBlocks{"l2_norm/grad/model.blocks.0.attn.Wqkv.weight", "l2_norm/grad/model.blocks.1.ffn.up_proj.weight"};
const std::string kTotalNote = "left out l2_norm/grad/global, the norm of the whole model; --fields chooses";

TEST(ConsoleLogs, LlmFoundry) {
  expect_read("llm_foundry.log", TraceFormat::llm_foundry, kBlocks, {{10, {0.5, 1.25}}, {20, {0.75, kNan}}},
              {kTotalNote, "1 step had no gradient norm"});
  expect_read("llm_foundry_epochs.log", TraceFormat::llm_foundry, kBlocks, {{1, {1, 2}}, {2, {3, 4}}, {3, {5, 6}}},
              {kTotalNote});
  expect_read("llm_foundry_tokens.log", TraceFormat::llm_foundry, kBlocks, {{1, {1, 2}}, {2, {3, 4}}}, {kTotalNote});
  EXPECT_EQ(read_text(fixture("llm_foundry.log"), {.field_pattern = "*/global"}).units, (Names{"l2_norm/grad/global"}));
}

TEST(ConsoleLogs, LightningCsv) {
  expect_read(
      "lightning_metrics.csv", TraceFormat::lightning_csv,
      {"grad_2.0_norm/layers.0.weight", "grad_2.0_norm/layers.1.weight"},
      {{0, {0.5, 1.25}}, {1, {0.75, kNan}}, {2, {2, 1}}},
      {"left out grad_2.0_norm_total, the norm of the whole model; --fields chooses", "2 rows had no gradient norm"});
}

TEST(LightningCsv, RowsOfOneStepMeetAndMeansOfEpochsAreLeftOut) {
  const Trace trace =
      read_text("epoch,grad_norm_epoch,grad_norm_step,other_grad_norm,step\n0,,1,,5\n0,,,2,5\n0,1.5,,,5\n");
  EXPECT_EQ(trace.units, (Names{"grad_norm_step", "other_grad_norm"}));
  EXPECT_EQ(trace.rows, (Rows{{5, {1, 2}}}));
}

TEST(LightningCsv, FaultsAndTornEnds) {
  EXPECT_EQ(error_in("epoch,step,train_loss\n0,1,2\n")
                .find("run: no gradient norms in this metrics.csv of Lightning; it has: "
                      "epoch, step, train_loss. In on_before_optimizer_step"),
            0U);
  EXPECT_EQ(error_in("epoch,grad_norm,step\n0,x,1\n"), "run: line 2, column 2: \"x\" is not a number");
  EXPECT_EQ(error_in("epoch,grad_norm,step\n0,1,\n"), "run: line 2, column 3: \"\" is not a step, a whole number");
  EXPECT_EQ(error_in("epoch,grad_norm,step\n0,1\n0,1,2\n"), "run: line 2, column 2: the row has 2 cells, the header 3");
  EXPECT_EQ(read_text("epoch,grad_norm,step\n0,1,1\n0,2").notes, (Names{"the last line is cut short and left out"}));
  EXPECT_EQ(read_text("step,epoch,grad_norm\n1,0,2\n").units, kGradNorm);
}

TEST(ConsoleLogs, WithoutNormsSayHowToLogThem) {
  const std::vector<std::pair<std::string, std::string>> logs{
      {"step:  1  loss: 12.2  memory: 1.00GiB(1.00%)  tps: 1,234\n",
       "torchtitan prints grad_norm from version 0.2.0 on"},
      {"{'loss': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n", "Newer versions of the Trainer print grad_norm"},
      {"Training epoch 0, iteration 0/9 | lr: 0.1 | reduced_train_loss: 9.1\n", "prog_bar=True"},
      {"iteration: 1 / 9 | lm_loss: 9.1 | lr: 0.1\n", "optimizer.clip_grad"},
      {"x\tINFO\t[step=1/9,epoch=0]\n    train/CrossEntropyLoss=9.1\n", "max_grad_norm"},
      {"[batch=1/9]:\n\t Train loss/train/total: 9.1\n", "optimizer_monitor"},
  };
  for (const auto& [text, hint] : logs) {
    const std::string message = error_in(text);
    EXPECT_EQ(message.find("run: no gradient norms in this "), 0U) << message;
    EXPECT_NE(message.find(hint), std::string::npos) << message;
    EXPECT_NE(message.find("oss"), std::string::npos) << message;  // what it does have
  }
}

TEST(ConsoleLogs, EveryTornEndIsAStop) {
  for (const char* name : {"torchtitan_colour.log", "hf_trainer.log", "nemo_printer.log", "nemo_bar.log",
                           "deepspeed_norm.log", "nanotron.log", "olmo.log", "llm_foundry.log"}) {
    const std::string text = fixture(name);
    const Trace all = read_text(text);
    for (std::size_t size = text.size() / 2; size < text.size(); ++size) {
      const Trace trace = read_text(text.substr(0, size), {.format = TraceFormat::automatic});
      ASSERT_LE(trace.rows.size(), all.rows.size()) << name << " " << size;
      for (std::size_t row = 0; row < trace.rows.size(); ++row) {
        ASSERT_EQ(trace.rows[row].step, all.rows[row].step) << name << " " << size;
        for (std::size_t unit = 0; unit < trace.units.size(); ++unit) {
          // A norm is there as it was written or not at all.
          const auto cell = trace.rows[row].cells[unit];
          ASSERT_TRUE(cell == kNone || cell == all.rows[row].cells[unit]) << name << " " << size;
        }
      }
    }
  }
}

TEST(ConsoleLogs, LongLinesAndBytesOfAnyKindDoNoHarm) {
  std::string text = std::string(100000, '[') + "\n" + std::string(100000, '\x1b') + "\n{'" + std::string(100000, '(') +
                     "\n\xff\xfe\n" + std::string(50000, '\r') + "\n[step=" + std::string(100000, '9') + "/1]\n";
  text += fixture("torchtitan_colour.log");
  EXPECT_EQ(read_text(text).rows.size(), 3U);
}

TEST(ConsoleLogs, LlmcAndMegatronWithColoursAndRanks) {
  EXPECT_EQ(read_text("[rank0]:\x1b[32mstep 1/9 | loss 1 (+nanz)| norm 2.5 (+nanz)|\x1b[0m\n").rows,
            (Rows{{1, {2.5}}}));
  EXPECT_EQ(read_text("\x1b[1m iteration 1/ 9 | grad norm: \x1b[31m1.000\x1b[0m |\n").rows, (Rows{{1, {1}}}));
}

}  // namespace
}  // namespace gnmr::io
