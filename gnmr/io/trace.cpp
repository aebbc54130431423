// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/trace.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/csv_trace.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/log_console.h"
#include "gnmr/io/log_detect.h"
#include "gnmr/io/log_jsonl.h"
#include "gnmr/io/log_lightning.h"
#include "gnmr/io/log_lines.h"
#include "gnmr/io/log_nvdlfw.h"
#include "gnmr/io/log_trainer_state.h"
#include "gnmr/io/log_wandb.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/tensorboard.h"

namespace gnmr::io {
namespace {

constexpr std::array<TraceFormatInfo, 17> kFormats{{
    {TraceFormat::automatic, "auto", "recognise the format by the content"},
    {TraceFormat::csv, "csv", "the project's own CSV: step,<unit>,..."},
    {TraceFormat::llmc, "llmc", "llm.c: main.log or its console output"},
    {TraceFormat::jsonl, "jsonl", "JSON Lines, an object per step"},
    {TraceFormat::trainer_state, "trainer-state", "Hugging Face's trainer_state.json"},
    {TraceFormat::megatron, "megatron", "Megatron's standard output"},
    {TraceFormat::tensorboard, "tensorboard", "TensorBoard event file, or the directory of a run"},
    {TraceFormat::wandb_csv, "wandb-csv", "CSV exported from Weights & Biases"},
    {TraceFormat::nvdlfw, "nvdlfw", "statistics log of nvdlfw-inspect"},
    {TraceFormat::torchtitan, "torchtitan", "torchtitan's console output"},
    {TraceFormat::hf_console, "hf-console", "console output of Hugging Face's Trainer, TRL or Axolotl"},
    {TraceFormat::nemo, "nemo", "progress lines or bars of NeMo, progress bars of Lightning"},
    {TraceFormat::deepspeed, "deepspeed", "DeepSpeed's console output"},
    {TraceFormat::nanotron, "nanotron", "nanotron's console output"},
    {TraceFormat::olmo, "olmo", "console output of OLMo or OLMo-core"},
    {TraceFormat::llm_foundry, "llm-foundry", "console output of llm-foundry or Composer"},
    {TraceFormat::lightning_csv, "lightning-csv", "metrics.csv of Lightning's CSVLogger"},
}};

bool names_its_fields(TraceFormat format) {
  return format != TraceFormat::csv && format != TraceFormat::llmc && format != TraceFormat::megatron;
}

// Whether a trace of this format can hold several runs.
bool may_have_runs(TraceFormat format) { return format == TraceFormat::wandb_csv; }

bool is_folder_of_events(const std::string& path, const TraceOptions& options) {
  std::error_code ignored;
  const bool may_be = options.format == TraceFormat::automatic || options.format == TraceFormat::tensorboard;
  return may_be && path != kStandardInput && std::filesystem::is_directory(path, ignored);
}

void check_field_options(const std::string& name, TraceFormat format, const TraceOptions& options) {
  if (!options.run.empty() && !may_have_runs(format)) {
    throw Error(name +
                ": is one run, so --run cannot choose; it is for exports of Weights & Biases and for folders of "
                "TensorBoard runs");
  }
  if (options.field_pattern.empty() || names_its_fields(format)) return;
  const auto* info = std::find_if(kFormats.begin(), kFormats.end(),
                                  [&](const TraceFormatInfo& candidate) { return candidate.format == format; });
  throw Error(name + ": a field pattern is for logs that name their fields, not for " + std::string(info->name));
}

}  // namespace

std::span<const TraceFormatInfo> trace_format_names() { return kFormats; }

TraceFormat trace_format_by_name(std::string_view name) {
  std::string known;
  for (const TraceFormatInfo& info : kFormats) {
    if (info.name == name) return info.format;
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  throw Error("no trace format " + in_quotes(name) + "; there are: " + known +
              did_you_mean(name, kFormats, [](const TraceFormatInfo& info) { return std::string_view(info.name); }));
}

std::unique_ptr<TraceReader> open_trace(const std::string& path, const TraceOptions& options) {
  if (is_folder_of_events(path, options)) return read_tensorboard_directory(path, options);
  return open_trace(open_byte_source(path), options);
}

std::vector<std::string> runs_of_trace(const std::string& path, const TraceOptions& options) {
  if (is_folder_of_events(path, options)) return tensorboard_runs(path);
  PeekableSource source(open_byte_source(path));
  const TraceFormat format = options.format == TraceFormat::automatic ? detect_trace_format(source) : options.format;
  return may_have_runs(format) ? wandb_runs(source, options) : std::vector<std::string>();
}

std::unique_ptr<TraceReader> open_trace(std::unique_ptr<ByteSource> source, const TraceOptions& options) {
  if (options.allow_restart && !source->can_rewind()) {
    throw Error(source->name() + ": --allow-restart reads a trace twice, which only a file can be");
  }
  auto peekable = std::make_unique<PeekableSource>(std::move(source));
  const TraceFormat format = options.format == TraceFormat::automatic ? detect_trace_format(*peekable) : options.format;
  check_field_options(peekable->name(), format, options);
  const auto rows = [&](std::unique_ptr<RowSource> row_source) {
    return in_step_order(std::move(row_source), options.allow_restart);
  };
  if (const ConsoleFormat* console = console_format(format)) return read_console_log(*peekable, *console, options);
  switch (format) {
    case TraceFormat::lightning_csv:
      return read_lightning_csv(*peekable, options);
    case TraceFormat::automatic:
      break;
    case TraceFormat::csv:
      return rows(make_csv_trace(std::move(peekable)));
    case TraceFormat::llmc:
      return rows(make_console_log(std::move(peekable), kLlmcLog));
    case TraceFormat::jsonl:
      return rows(make_jsonl_log(std::move(peekable), options));
    case TraceFormat::trainer_state:
      return read_trainer_state(*peekable, options);
    case TraceFormat::megatron:
      return rows(make_console_log(std::move(peekable), kMegatronLog));
    case TraceFormat::tensorboard:
      return read_tensorboard(*peekable, options);
    case TraceFormat::wandb_csv:
      return rows(make_wandb_log(std::move(peekable), options));
    case TraceFormat::nvdlfw:
      return read_nvdlfw_log(*peekable, options);
    default:
      break;
  }
  throw Error(peekable->name() + ": no such trace format");
}

}  // namespace gnmr::io
