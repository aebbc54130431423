// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/held_batches.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/io/hex_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/train/rank_agreement.h"

namespace gnmr::train {

namespace {

/// How far apart two gradients are at least, by the squared norms of their parts, relative to the second.
double distance_between(std::span<const double> first_squares, std::span<const double> second_squares) {
  double difference = 0;
  double size = 0;
  for (std::size_t index = 0; index < first_squares.size(); ++index) {
    const double apart = std::sqrt(first_squares[index]) - std::sqrt(second_squares[index]);
    difference += apart * apart;
    size += second_squares[index];
  }
  return std::sqrt(difference / size);
}

}  // namespace

void HeldBatches::keep(std::int64_t batch, const BatchNumbers& numbers) {
  runs_[batch] = {.loss = numbers.loss, .squares = numbers.squares, .own_norm = numbers.own_norm};
}

run::RerunContext HeldBatches::compare(std::int64_t batch, const BatchNumbers& rerun, nn::Collective& ranks) {
  run::RerunContext context{
      .loss = rerun.loss, .norm = rerun.update.grad_norm, .seconds = rerun.seconds, .applied = rerun.update.applied};
  const auto found = runs_.find(batch);
  if (found == runs_.end()) return context;
  const Run before = std::move(found->second);
  runs_.erase(found);
  context.loss_before = before.loss;
  context.norm_before = std::sqrt(std::accumulate(before.squares.begin(), before.squares.end(), 0.0));
  context.distance = distance_between(before.squares, rerun.squares);
  if (before.own_norm) context.rank = most_changed_rank(ranks, *before.own_norm, rerun.own_norm);
  return context;
}

std::string HeldBatches::save() const {
  std::string text;
  for (const auto& [batch, run] : runs_) {
    std::vector<double> numbers{run.loss};
    numbers.insert(numbers.end(), run.squares.begin(), run.squares.end());
    const std::string_view bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
    text += std::to_string(batch) + ' ' + io::hex_text(bytes) + '\n';
  }
  return text;
}

void HeldBatches::restore(const std::string& text, std::size_t parameters) {
  const std::size_t expected = (parameters + 1) * sizeof(double);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t blank = std::min(line.find(' '), line.size());
    std::int64_t batch = 0;
    const std::string bytes = io::bytes_of_hex(line.substr(std::min(blank + 1, line.size())));
    if (!io::parse_whole(line.substr(0, blank), batch) || bytes.size() != expected) {
      throw Error("held_passes is not of this model");
    }
    Run& run = runs_[batch];
    run.squares.resize(parameters);
    std::memcpy(&run.loss, bytes.data(), sizeof(double));
    std::memcpy(run.squares.data(), bytes.data() + sizeof(double), bytes.size() - sizeof(double));
  }
}

}  // namespace gnmr::train
