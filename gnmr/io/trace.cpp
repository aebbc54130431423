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
#include "gnmr/io/log_detect.h"
#include "gnmr/io/log_jsonl.h"
#include "gnmr/io/log_lines.h"
#include "gnmr/io/log_nvdlfw.h"
#include "gnmr/io/log_trainer_state.h"
#include "gnmr/io/log_wandb.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/tensorboard.h"

namespace gnmr::io {
namespace {

constexpr std::array<TraceFormatInfo, 9> kFormats{{
    {TraceFormat::automatic, "auto", "recognise the format by the content"},
    {TraceFormat::csv, "csv", "the project's own CSV: step,<unit>,..."},
    {TraceFormat::llmc, "llmc", "llm.c: main.log or its console output"},
    {TraceFormat::jsonl, "jsonl", "JSON Lines, an object a step"},
    {TraceFormat::trainer_state, "trainer-state", "Hugging Face's trainer_state.json"},
    {TraceFormat::megatron, "megatron", "Megatron's standard output"},
    {TraceFormat::tensorboard, "tensorboard", "TensorBoard event file, or the directory of a run"},
    {TraceFormat::wandb_csv, "wandb-csv", "CSV exported from Weights & Biases"},
    {TraceFormat::nvdlfw, "nvdlfw", "statistics log of nvdlfw-inspect"},
}};

bool names_its_fields(TraceFormat format) {
  return format != TraceFormat::csv && format != TraceFormat::llmc && format != TraceFormat::megatron;
}

void check_field_options(const std::string& name, TraceFormat format, const TraceOptions& options) {
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
  std::error_code ignored;
  const bool is_directory = path != kStandardInput && std::filesystem::is_directory(path, ignored);
  const bool may_be_directory = options.format == TraceFormat::automatic || options.format == TraceFormat::tensorboard;
  if (is_directory && may_be_directory) return read_tensorboard_directory(path, options);
  return open_trace(open_byte_source(path), options);
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
  switch (format) {
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
  }
  throw Error(peekable->name() + ": no such trace format");
}

}  // namespace gnmr::io
