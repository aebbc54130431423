// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/olmo_skip.h"

#include <cmath>
#include <utility>

#include "gnmr/lab/rivals/rule_memory.h"

namespace gnmr::lab {
namespace {

constexpr std::uint32_t kOlmoSkipVersion = 1;

}  // namespace

bool OlmoSkip::is_usual(double Step::*number, double value) const {
  const auto count = static_cast<double>(window_.size());
  double sum = 0;
  for (const Step& step : window_) sum += step.*number;
  const double mean = sum / count;
  double squares = 0;
  for (const Step& step : window_) squares += (step.*number - mean) * (step.*number - mean);
  return value - mean <= options_.sigma * std::sqrt(squares / (count - 1));
}

bool OlmoSkip::observe(double loss, double norm) {
  if (!is_usable(loss) || !is_usable(norm)) return false;
  const auto seen = static_cast<std::int64_t>(window_.size()) + 1;
  const bool is_asked = seen >= options_.window / 2;
  const bool is_made = !is_asked || (is_usual(&Step::loss, loss) && is_usual(&Step::norm, norm));
  window_.push_back({loss, norm});
  while (static_cast<std::int64_t>(window_.size()) > options_.window) window_.pop_front();
  return is_made;
}

std::string OlmoSkip::save() const {
  std::string bytes = begin_memory(OlmoSkipOptions::kRule, kOlmoSkipVersion);
  io::append_little_endian(bytes, static_cast<std::uint64_t>(window_.size()));
  for (const Step& step : window_) {
    io::append_little_endian(bytes, step.loss);
    io::append_little_endian(bytes, step.norm);
  }
  return bytes;
}

void OlmoSkip::restore(std::string_view bytes) {
  MemoryReader reader(bytes, OlmoSkipOptions::kRule, kOlmoSkipVersion);
  std::deque<Step> window;
  for (std::size_t left = reader.take_last_records(2 * sizeof(double)); left > 0; --left) {
    const double loss = reader.take_number();
    window.push_back({loss, reader.take_norm()});
  }
  window_ = std::move(window);
}

}  // namespace gnmr::lab
