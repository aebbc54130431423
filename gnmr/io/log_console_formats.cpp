// SPDX-License-Identifier: Apache-2.0
// How the lines of each console format are split; docs/logs.md says against which source each was checked.
#include <algorithm>
#include <array>

#include "gnmr/io/log_console.h"
#include "gnmr/io/number_text.h"

namespace gnmr::io {
namespace {

void skip_blanks(std::string_view& rest) {
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
}

bool take(std::string_view& rest, std::string_view word) {
  if (!rest.starts_with(word)) return false;
  rest.remove_prefix(word.size());
  return true;
}

// A step, an epoch or a total: never negative, and small enough to count on from it.
bool take_count(std::string_view& rest, std::int64_t& count) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  skip_blanks(rest);
  std::size_t size = 0;
  while (size < rest.size() && is_digit(rest[size])) ++size;
  if (!parse_whole(rest.substr(0, size), count) || count > kMost) return false;
  rest.remove_prefix(size);
  return true;
}

std::string_view take_until(std::string_view& rest, char end, bool& found) {
  const std::size_t at = rest.find(end);
  found = at != std::string_view::npos;
  const std::string_view taken = rest.substr(0, at);
  rest.remove_prefix(found ? at + 1 : rest.size());
  return taken;
}

bool has_field(const ConsoleParse& parse, std::string_view name) {
  return std::any_of(parse.fields.begin(), parse.fields.end(),
                     [&](const ConsoleField& field) { return field.name == name; });
}

// `loss:  8.1  grad_norm: 1.2`: a value has no blanks.
void split_pairs(std::string_view rest, bool whole, ConsoleParse& parse) {
  for (bool found = true;;) {
    const std::string_view name = trim_blanks(take_until(rest, ':', found));
    if (!found) return;
    skip_blanks(rest);
    const std::size_t end = std::min(rest.find_first_of(" \t"), rest.size());
    parse.fields.push_back({name, rest.substr(0, end), end == rest.size() && !whole});
    rest.remove_prefix(end);
  }
}

// `lr: 0.1 | grad_norm: 1.2`
void split_at_bars(std::string_view rest, bool whole, ConsoleParse& parse) {
  for (bool closed = true; !rest.empty();) {
    std::string_view value = take_until(rest, '|', closed);
    bool named = false;
    const std::string_view name = trim_blanks(take_until(value, ':', named));
    if (named) parse.fields.push_back({name, trim_blanks(value), !closed && !whole});
  }
}

// `step=10, lr=[1e-05, 1e-06], loss=2.1` up to `end`; commas in brackets separate nothing. Without `end` the last value
// may be cut.
void split_assignments(std::string_view rest, char end, bool whole, ConsoleParse& parse) {
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t at = 0; at <= rest.size(); ++at) {
    const bool over = at == rest.size();
    const bool ended = over || (depth == 0 && end != '\0' && rest[at] == end);
    if (!ended && rest[at] != ',') {
      if (rest[at] == '[' || rest[at] == '(') ++depth;
      if ((rest[at] == ']' || rest[at] == ')') && depth > 0) --depth;
      continue;
    }
    if (!ended && depth > 0) continue;
    const std::string_view item = rest.substr(start, at - start);
    start = at + 1;
    const std::size_t equals = item.find('=');
    if (equals != std::string_view::npos) {
      const bool cut = over && (end != '\0' || !whole);
      parse.fields.push_back({trim_blanks(item.substr(0, equals)), trim_blanks(item.substr(equals + 1)), cut});
    }
    if (ended) return;
  }
}

// [titan] 2026-01-01 00:00:00,000 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2345  memory: 1.00GiB(1.00%)
// ...
ConsoleRole parse_torchtitan(std::string_view text, bool whole, ConsoleParse& parse) {
  constexpr std::string_view kStep = "step:";
  const std::size_t at = text.find(kStep);
  if (at == std::string_view::npos || (at > 0 && !is_blank(text[at - 1]))) return ConsoleRole::other;
  if (trim_blanks(text.substr(0, at)).ends_with("validate")) return ConsoleRole::other;
  std::string_view rest = text.substr(at + kStep.size());
  std::int64_t step = 0;
  if (!take_count(rest, step)) return ConsoleRole::other;
  skip_blanks(rest);
  if (!rest.starts_with("loss:")) return ConsoleRole::other;
  parse.step = step;
  split_pairs(rest, whole, parse);
  return ConsoleRole::begins;
}

// One value of a Python dictionary: its text, or its number where it is `'1.2'`, `tensor(1.2, ...)`, `np.float64(1.2)`.
std::string_view take_python_value(std::string_view& rest, bool& ended) {
  skip_blanks(rest);
  ended = true;
  if (rest.starts_with('\'') || rest.starts_with('"')) {
    const char quote = rest.front();
    rest.remove_prefix(1);
    const std::string_view value = take_until(rest, quote, ended);
    bool comma = false;
    take_until(rest, ',', comma);
    return value;
  }
  int depth = 0;
  std::size_t size = 0;
  for (; size < rest.size(); ++size) {
    const char character = rest[size];
    if (depth == 0 && (character == ',' || character == '}')) break;
    if (character == '(' || character == '[' || character == '{') ++depth;
    if (character == ')' || character == ']' || character == '}') --depth;
  }
  ended = size < rest.size();
  std::string_view value = trim_blanks(rest.substr(0, size));
  rest.remove_prefix(ended && rest[size] == ',' ? size + 1 : size);
  if (const std::size_t call = value.find('('); call != std::string_view::npos) {
    value.remove_prefix(call + 1);
    value = value.substr(0, value.find_first_of(",)"));
  }
  return value;
}

// {'loss': 2.1, 'grad_norm': 0.9, 'learning_rate': 1e-05, 'epoch': 0.1}
ConsoleRole parse_hugging_face(std::string_view text, bool whole, ConsoleParse& parse) {
  static_cast<void>(whole);  // a value ends with a comma or a brace, or is cut
  const std::size_t at = text.find("{'");
  if (at == std::string_view::npos) return ConsoleRole::other;
  std::string_view rest = text.substr(at + 1);
  for (;;) {
    skip_blanks(rest);
    if (!rest.starts_with('\'') && !rest.starts_with('"')) break;
    const char quote = rest.front();
    rest.remove_prefix(1);
    bool found = false;
    const std::string_view name = take_until(rest, quote, found);
    if (!found || !take(rest, ":")) break;
    bool ended = false;
    const std::string_view value = take_python_value(rest, ended);
    parse.fields.push_back({name, value, !ended});
  }
  const bool is_entry =
      has_field(parse, "loss") && (has_field(parse, "learning_rate") || has_field(parse, "grad_norm"));
  return is_entry ? ConsoleRole::begins : ConsoleRole::other;
}

// Training epoch 0, iteration 9/99 | lr: 0.0001 | global_step: 9 | reduced_train_loss: 9.1 | grad_norm: 1.2
bool parse_nemo_line(std::string_view text, bool whole, ConsoleParse& parse) {
  constexpr std::string_view kEpoch = "Training epoch ";
  const std::size_t at = text.find(kEpoch);
  if (at == std::string_view::npos) return false;
  std::string_view rest = text.substr(at + kEpoch.size());
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t total = 0;
  if (!take_count(rest, epoch) || !take(rest, ", iteration ") || !take_count(rest, step)) return false;
  if (!take(rest, "/") || !take_count(rest, total)) return false;
  parse.epoch = epoch;
  parse.step = step + 1;  // counted from 0 in each epoch
  split_at_bars(rest, whole, parse);
  return true;
}

// Epoch 0: :   1%|1         | 10/1000 [00:10<16:30, v_num=0, reduced_train_loss=9.1, global_step=9.000, grad_norm=1.2]
bool parse_training_bar(std::string_view text, ConsoleParse& parse) {
  constexpr std::string_view kEpoch = "Epoch ";
  const std::size_t at = text.find(kEpoch);
  if (at == std::string_view::npos) return false;
  std::string_view rest = text.substr(at + kEpoch.size());
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  if (!take_count(rest, epoch) || !rest.starts_with(':')) return false;
  const std::size_t bracket = rest.find(" [");
  if (bracket == std::string_view::npos) return false;
  // The total is missing or `?` where it is not known.
  std::string_view counts = rest.substr(0, bracket);
  const std::size_t bar = counts.rfind('|');
  const std::size_t before = bar != std::string_view::npos ? bar : counts.rfind(' ');
  if (before != std::string_view::npos) counts.remove_prefix(before + 1);
  if (!take_count(counts, step)) return false;
  parse.epoch = epoch;
  parse.step = step;
  split_assignments(rest.substr(bracket + 2), ']', true, parse);
  return true;
}

ConsoleRole parse_nemo(std::string_view text, bool whole, ConsoleParse& parse) {
  if (parse_nemo_line(text, whole, parse) || parse_training_bar(text, parse)) return ConsoleRole::begins;
  return ConsoleRole::other;
}

// [2026-01-01 00:00:00,000] [INFO] [logging.py:128:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]
// steps: 10 loss: 2.1234 iter time (s): 0.500 samples/sec: 64.000
ConsoleRole parse_deepspeed(std::string_view text, bool whole, ConsoleParse& parse) {
  constexpr std::string_view kStep = "step=";
  constexpr std::string_view kSteps = "steps:";
  std::int64_t step = 0;
  if (const std::size_t at = text.find(" step="); at != std::string_view::npos || text.starts_with(kStep)) {
    std::string_view rest = text.substr(at == std::string_view::npos ? 0 : at + 1);
    const std::string_view fields = rest;
    rest.remove_prefix(kStep.size());
    if (!take_count(rest, step) || !take(rest, ", skipped=")) return ConsoleRole::other;
    parse.step = step;
    split_assignments(fields, '\0', whole, parse);
    return ConsoleRole::begins;
  }
  const std::size_t at = text.find(kSteps);
  if (at == std::string_view::npos || (at > 0 && !is_blank(text[at - 1]))) return ConsoleRole::other;
  std::string_view rest = text.substr(at + kSteps.size());
  if (!take_count(rest, step)) return ConsoleRole::other;
  skip_blanks(rest);
  if (!rest.starts_with("loss:") || rest.find("iter time (s):") == std::string_view::npos) return ConsoleRole::other;
  parse.step = step;
  split_pairs(rest, whole, parse);
  return ConsoleRole::begins;
}

// 01/01 00:00:00 [INFO|DP=0]: iteration: 10 / 100 | consumed_tokens: 2.62M | ... | grad_norm: 1.2 | lm_loss: 9.1 | ...
ConsoleRole parse_nanotron(std::string_view text, bool whole, ConsoleParse& parse) {
  constexpr std::string_view kIteration = "iteration: ";
  const std::size_t at = text.find(kIteration);
  if (at == std::string_view::npos) return ConsoleRole::other;
  std::string_view rest = text.substr(at + kIteration.size());
  std::int64_t step = 0;
  std::int64_t total = 0;
  if (!take_count(rest, step) || !take(rest, " /") || !take_count(rest, total)) return ConsoleRole::other;
  if (!take(rest, " |")) return ConsoleRole::other;
  parse.step = step;
  split_at_bars(rest, whole, parse);
  return ConsoleRole::begins;
}

// 2026-01-01 00:00:00.000	host:0	olmo.train:979	INFO	[step=10/739328,epoch=0]
//     train/CrossEntropyLoss=9.123
//     optim/total_grad_norm=1.234
ConsoleRole parse_olmo(std::string_view text, bool whole, ConsoleParse& parse) {
  constexpr std::string_view kIndent = "    ";
  if (text.starts_with(kIndent)) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) return ConsoleRole::other;
    parse.fields.push_back({trim_blanks(text.substr(0, equals)), trim_blanks(text.substr(equals + 1)), !whole});
    return ConsoleRole::more;
  }
  constexpr std::string_view kStep = "[step=";
  const std::size_t at = text.find(kStep);
  if (at == std::string_view::npos || !trim_blanks(text).ends_with(']')) return ConsoleRole::other;
  std::string_view rest = text.substr(at + kStep.size());
  std::int64_t step = 0;
  if (!take_count(rest, step) || !rest.starts_with('/')) return ConsoleRole::other;
  parse.step = step;
  return ConsoleRole::begins;
}

// [batch=10/4800]:
//	 Train time/batch: 9
//	 Train l2_norm/grad/global: 1.2345
ConsoleRole parse_composer_field(std::string_view text, bool whole, ConsoleParse& parse) {
  std::string_view rest = trim_blanks(text);
  if (!take(rest, "Train ")) return ConsoleRole::other;
  const std::size_t colon = rest.rfind(": ");
  if (colon == std::string_view::npos) return ConsoleRole::other;
  const std::string_view name = rest.substr(0, colon);
  const std::string_view value = trim_blanks(rest.substr(colon + 2));
  std::string_view digits = value;
  std::int64_t batches_before = 0;
  if (name == "time/batch" && take_count(digits, batches_before)) parse.step = batches_before + 1;
  parse.fields.push_back({name, value, !whole});
  return ConsoleRole::more;
}

ConsoleRole parse_composer(std::string_view text, bool whole, ConsoleParse& parse) {
  if (!text.starts_with('[')) return parse_composer_field(text, whole, parse);
  constexpr std::array<std::string_view, 6> kUnits{"epoch=", "batch=", "iteration=", "sample=", "token=", "second="};
  std::string_view rest = text;
  bool any = false;
  while (take(rest, "[")) {
    const auto* const unit =
        std::find_if(kUnits.begin(), kUnits.end(), [&](std::string_view name) { return take(rest, name); });
    std::int64_t count = 0;
    bool closed = false;
    if (unit == kUnits.end() || !take_count(rest, count)) return ConsoleRole::other;
    take_until(rest, ']', closed);
    if (!closed) return ConsoleRole::other;
    if (*unit == "epoch=") parse.epoch = count;
    if (*unit == "batch=") parse.step = count;
    any = true;
  }
  const bool at_end = rest.empty() || rest == ":";
  return any && at_end ? ConsoleRole::begins : ConsoleRole::other;
}

constexpr std::array<ConsoleFormat, 7> kConsoleFormats{{
    {TraceFormat::torchtitan, parse_torchtitan, "this torchtitan log", "", false,
     "torchtitan prints grad_norm from version 0.2.0 on"},
    {TraceFormat::hf_console, parse_hugging_face, "this Hugging Face console log", "step", false,
     "Newer versions of the Trainer print grad_norm; trainer_state.json has it too"},
    {TraceFormat::nemo, parse_nemo, "this NeMo or Lightning progress log", "global_step", true,
     "NeMo logs grad_norm to TensorBoard and Weights & Biases, which can be replayed; a progress bar shows what is "
     "logged "
     "with prog_bar=True"},
    {TraceFormat::deepspeed, parse_deepspeed, "this DeepSpeed log", "", false,
     "DeepSpeed prints no norms: after each step log engine.get_global_grad_norm(), as a JSON line "
     "{\"step\": N, \"grad_norm\": X} or at the end of its line as `, grad_norm=X`; Megatron-DeepSpeed and the Trainer "
     "of Hugging Face print it themselves"},
    {TraceFormat::nanotron, parse_nanotron, "this nanotron log", "", false,
     "nanotron prints grad_norm where optimizer.clip_grad is set"},
    {TraceFormat::olmo, parse_olmo, "this OLMo log", "", false,
     "OLMo prints optim/total_grad_norm, and OLMo-core optim/total grad norm, where max_grad_norm is set"},
    {TraceFormat::llm_foundry, parse_composer, "this llm-foundry or Composer log", "", false,
     "The callback optimizer_monitor of llm-foundry (OptimizerMonitor of Composer) logs l2_norm/grad/..."},
}};

}  // namespace

std::span<const ConsoleFormat> console_formats() { return kConsoleFormats; }

}  // namespace gnmr::io
