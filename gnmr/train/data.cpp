// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/data.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/text_error.h"
#include "gnmr/run/random_stream.h"

namespace gnmr::train {
namespace {

using run::RandomPurpose;
using run::RandomStream;

constexpr std::int64_t kHeldOutStretchTokens = 65536;  // about so long, where there is enough data
constexpr std::int64_t kMostStretches = 64;
constexpr std::int64_t kBytes = 256;                  // that there are
constexpr std::int64_t kEvaluationSeed = 0x6e6d7267;  // any fixed number

// A permutation of 0..size-1 without a table: a balanced Feistel network over the next even number of bits, walked
// until it lands inside (at most four steps on average).
class Permutation {
 public:
  Permutation(std::uint64_t size, std::int64_t seed, std::int64_t epoch) : size_(size) {
    const auto bits = static_cast<unsigned>(std::bit_width(size > 1 ? size - 1 : 1));
    half_bits_ = (bits + 1) / 2;
    RandomStream keys(RandomPurpose::data_order, {seed, epoch});
    for (std::uint64_t& key : keys_) key = keys.next();
  }

  std::int64_t operator()(std::int64_t index) const {
    auto value = static_cast<std::uint64_t>(index);
    do {
      value = round_trip(value);
    } while (value >= size_);
    return static_cast<std::int64_t>(value);
  }

 private:
  std::uint64_t round_trip(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (const std::uint64_t key : keys_) {
      std::uint64_t mixed = (right + key) * 0xBF58476D1CE4E5B9U;
      mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
      left = std::exchange(right, left ^ ((mixed ^ (mixed >> 31U)) & mask));
    }
    return left << half_bits_ | right;
  }

  std::uint64_t size_;
  unsigned half_bits_ = 1;
  std::array<std::uint64_t, 6> keys_{};
};

void check_positive(const char* name, std::int64_t value) {
  if (value < 1) {
    throw Error(std::string("[data] expected `") + name + "` >= 1, got " + std::to_string(value));
  }
}

DataSettings checked(DataSettings settings) {
  check_positive("batch", settings.batch);
  check_positive("sequence", settings.sequence);
  check_positive("accumulate", settings.accumulate);
  check_positive("world", settings.world);
  if (settings.rank < 0 || settings.rank >= settings.world) {
    throw Error("[data] expected a rank below " + std::to_string(settings.world) + ", got " +
                std::to_string(settings.rank));
  }
  if (!(settings.held_out > 0 && settings.held_out < 1)) {
    throw Error("[data] expected `held_out` in (0, 1), got " + std::to_string(settings.held_out));
  }
  return settings;
}

DataSettings checked_files(const DataSettings& settings) {
  check_positive("vocabulary", settings.vocabulary);
  return checked(settings);
}

// Files as given, or the standard ones.
std::string take_standard_text(DataSettings& settings) {
  if (!settings.files.empty()) return {};
  StandardText text = find_standard_text();
  settings.files = std::move(text.files);
  return text.folder;
}

// Gives each stretch its sequences; those that are too short for one are left out.
std::int64_t number_sequences(std::vector<Stretch>& stretches, std::int64_t sequence, bool offsets) {
  std::int64_t count = 0;
  for (Stretch& stretch : stretches) {
    const std::int64_t usable = stretch.end - stretch.begin - 1;  // the last token is only a target
    stretch.sequences = std::max<std::int64_t>(0, usable / sequence);
    // One less leaves room to cut anywhere: over the epochs every token comes first, and last, in some sequence.
    if (offsets && stretch.sequences > 1) --stretch.sequences;
    if (offsets) stretch.largest_offset = std::min(sequence - 1, usable - stretch.sequences * sequence);
    stretch.first_sequence = count;
    count += stretch.sequences;
  }
  std::erase_if(stretches, [](const Stretch& stretch) { return stretch.sequences == 0; });
  return count;
}

Batch draw_samples(std::initializer_list<std::int64_t> names, const DataSettings& settings) {
  RandomStream stream(RandomPurpose::samples, names);
  const at::Tensor numbers = at::empty({settings.batch, settings.sequence}, at::kLong);
  auto* const number = numbers.mutable_data_ptr<std::int64_t>();
  std::generate_n(number, numbers.numel(), [&] { return static_cast<std::int64_t>(stream.next() >> 1U); });
  return {.tokens = numbers, .targets = numbers};
}

const Stretch& stretch_of(const std::vector<Stretch>& stretches, std::int64_t sequence_index) {
  const auto after =
      std::upper_bound(stretches.begin(), stretches.end(), sequence_index,
                       [](std::int64_t at, const Stretch& stretch) { return at < stretch.first_sequence; });
  return *(after - 1);
}

}  // namespace

Data::Data(const DataSettings& settings)
    : settings_(checked_files(settings)), standard_folder_(take_standard_text(settings_)), stream_(settings_.files) {
  check_vocabulary();
  split();
  fingerprint_ = stream_.fingerprint();
  const bool is_text = stream_.largest_vocabulary() == kBytes;
  if (settings_.shift != 0 && (!is_text || settings_.vocabulary < kBytes)) {
    throw Error("[data] " + std::string(kShiftedData) + " needs text, read as bytes, and a vocabulary of 256");
  }
  std::int64_t held_out = 0;
  for (const Stretch& stretch : held_out_) held_out += stretch.end - stretch.begin;
  const std::size_t files = stream_.file_count();
  description_ = std::to_string(files) + (files == 1 ? " file, " : " files, ") + std::to_string(stream_.size()) +
                 (is_text ? " bytes, " : " tokens, ") + std::to_string(held_out) + " of them held out";
  if (!standard_folder_.empty()) {
    description_ = "no data was named: the Python standard library in " + standard_folder_ + ", " + description_;
  }
}

void Data::check_vocabulary() const {
  const std::int64_t position = stream_.first_outside(settings_.vocabulary);
  if (position < 0) return;
  std::array<std::int64_t, 1> token{};
  stream_.read(position, token);
  throw io::error_at(stream_.place(position), "its value " + std::to_string(token[0]) +
                                                  " is not in the model's vocabulary of " +
                                                  std::to_string(settings_.vocabulary));
}

// The stream is cut into equal parts, and the end of each is held out.
void Data::split() {
  const std::int64_t size = stream_.size();
  const std::int64_t sequence = settings_.sequence;
  if (size < sequence + 1) {
    throw Error("[data] a sequence of " + std::to_string(sequence) + " needs " + std::to_string(sequence + 1) +
                " tokens, the data has " + std::to_string(size));
  }
  const auto wanted = static_cast<std::int64_t>(settings_.held_out * static_cast<double>(size));
  const std::int64_t parts = std::clamp<std::int64_t>(wanted / kHeldOutStretchTokens, 1, kMostStretches);
  for (std::int64_t part = 0; part < parts; ++part) {
    // Products of a size and a small number: no overflow for anything that can be mapped.
    const std::int64_t begin = size * part / parts;
    const std::int64_t end = size * (part + 1) / parts;
    const std::int64_t middle = end - wanted / parts;
    training_.push_back({.begin = begin, .end = middle});
    held_out_.push_back({.begin = middle, .end = end});
  }
  training_count_ = number_sequences(training_, sequence, true);
  held_out_count_ = number_sequences(held_out_, sequence, false);
  const std::string tail = " of " + std::to_string(size) + " tokens, a sequence needs " + std::to_string(sequence + 1) +
                           ": give more data or a shorter sequence";
  if (held_out_count_ == 0) {
    throw Error("[data] too little is held out: " + std::to_string(wanted) + tail + ", or hold out more");
  }
  if (training_count_ == 0) {
    throw Error("[data] too little is left to train on: " + std::to_string(size - wanted) + tail +
                ", or hold out less");
  }
}

std::int64_t Data::training_position(std::int64_t sequence_index) const {
  const std::int64_t epoch = sequence_index / training_count_;
  const Permutation order(static_cast<std::uint64_t>(training_count_), settings_.seed, epoch);
  const std::int64_t chosen = order(sequence_index % training_count_);
  const Stretch& stretch = stretch_of(training_, chosen);
  RandomStream offsets(RandomPurpose::data_offset, {settings_.seed, epoch, stretch.begin});
  const auto offset = static_cast<std::int64_t>(offsets.below(static_cast<std::uint64_t>(stretch.largest_offset) + 1));
  return stretch.begin + offset + (chosen - stretch.first_sequence) * settings_.sequence;
}

Batch Data::cut(const std::vector<std::int64_t>& positions) const {
  const std::int64_t sequence = settings_.sequence;
  const auto rows = static_cast<std::int64_t>(positions.size());
  Batch batch{.tokens = at::empty({rows, sequence}, at::kLong), .targets = at::empty({rows, sequence}, at::kLong)};
  auto* tokens = batch.tokens.mutable_data_ptr<std::int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t position : positions) {
    stream_.read(position, {tokens, static_cast<std::size_t>(sequence)});
    stream_.read(position + 1, {targets, static_cast<std::size_t>(sequence)});
    tokens += sequence;
    targets += sequence;
  }
  if (settings_.shift != 0) {
    for (at::Tensor* const part : {&batch.tokens, &batch.targets}) part->add_(settings_.shift).remainder_(kBytes);
  }
  return batch;
}

Batch Data::training_batch(std::int64_t step, std::int64_t micro_batch) const {
  if (step < 1 || micro_batch < 0 || micro_batch >= settings_.accumulate) {
    throw Error("[data] there is no micro-batch " + std::to_string(micro_batch) + " of step " + std::to_string(step));
  }
  const std::int64_t rows = settings_.batch * settings_.world;  // of all ranks in a micro-batch
  const std::int64_t first =
      ((step - 1) * settings_.accumulate + micro_batch) * rows + settings_.rank * settings_.batch;
  std::vector<std::int64_t> positions;
  for (std::int64_t row = 0; row < settings_.batch; ++row) positions.push_back(training_position(first + row));
  return cut(positions);
}

Batch Data::evaluation_batch(std::int64_t index) const {
  if (index < 0) throw Error("[data] there is no evaluation batch " + std::to_string(index));
  const Permutation order(static_cast<std::uint64_t>(held_out_count_), kEvaluationSeed, 0);
  std::vector<std::int64_t> positions;
  for (std::int64_t row = 0; row < settings_.batch; ++row) {
    const std::int64_t chosen = order((index * settings_.batch + row) % held_out_count_);
    const Stretch& stretch = stretch_of(held_out_, chosen);
    positions.push_back(stretch.begin + (chosen - stretch.first_sequence) * settings_.sequence);
  }
  return cut(positions);
}

ChangingData::ChangingData(const DataSettings& first, const DataSettings& second, std::int64_t at)
    : first_(first),
      second_(second),
      at_(at),
      description_(first_.description() + "; from step " + std::to_string(at) + " on " + second_.description() +
                   (second.shift > 0 ? ", shifted" : "")),
      fingerprint_(first_.fingerprint() + ", then " + second_.fingerprint() + (second.shift > 0 ? " shifted" : "")) {
  check_positive("then_at", at - 1);
}

Batch ChangingData::training_batch(std::int64_t step, std::int64_t micro_batch) const {
  return step < at_ ? first_.training_batch(step, micro_batch) : second_.training_batch(step - at_ + 1, micro_batch);
}

DataSettings data_after_change(const DataSettings& first, const std::vector<std::string>& then_data) {
  constexpr std::int64_t kHalfOfAllBytes = 128;
  DataSettings second = first;
  if (then_data.size() == 1 && then_data.front() == kShiftedData) {
    second.shift = kHalfOfAllBytes;
  } else {
    second.files = then_data;
  }
  return second;
}

SampleNumbers::SampleNumbers(const DataSettings& settings) : settings_(checked(settings)) {}

Batch SampleNumbers::training_batch(std::int64_t step, std::int64_t micro_batch) const {
  if (step < 1 || micro_batch < 0 || micro_batch >= settings_.accumulate) {
    throw Error("[data] there is no micro-batch " + std::to_string(micro_batch) + " of step " + std::to_string(step));
  }
  return draw_samples({settings_.seed, step, micro_batch, settings_.rank}, settings_);
}

Batch SampleNumbers::evaluation_batch(std::int64_t index) const {
  if (index < 0) throw Error("[data] there is no evaluation batch " + std::to_string(index));
  return draw_samples({kEvaluationSeed, 0, index, 0}, settings_);
}

}  // namespace gnmr::train
