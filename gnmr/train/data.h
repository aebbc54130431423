// SPDX-License-Identifier: Apache-2.0
// Batches for training and for evaluation.
//
// A part of the data is held out: stretches spread over it, chosen by the amount of data alone, so that runs with other
// seeds, batches or sequences are judged on the same text, and no training sequence touches one. The rest is cut into
// sequences; an epoch takes each once, in an order of its own and cut at other places than the last one.
//
// Goals: every batch is a pure function of (seed, step, micro-batch, rank), so that a resumed run needs no state; ranks
// share the sequences of a step as one larger batch would have them. Non-goals: tokenizing, packing, masks, streaming
// from a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/train/data_source.h"

namespace gnmr::train {

/// A name in place of files: the text before the change, in bytes that it does not have.
inline constexpr std::string_view kShiftedData = "@shifted";

/// What to read and how.
struct DataSettings {
  std::vector<std::string> files = {};  // none: find_standard_text()
  double held_out = 0.05;               // share of the data
  std::int64_t seed = 0;
  std::int64_t batch = 8;       // sequences a micro-batch of this rank
  std::int64_t sequence = 128;  // tokens
  std::int64_t accumulate = 1;  // micro-batches a step
  std::int64_t vocabulary = 256;
  std::int64_t shift = 0;  // added to each byte of text
  std::int64_t rank = 0;
  std::int64_t world = 1;
};

/// Tokens and what follows each, both int64 [batch, sequence] on the CPU.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
};

/// Where a run's batches come from. Giving batches is for any number of threads.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// A micro-batch, counted from 0, of a step, counted from 1.
  virtual Batch training_batch(std::int64_t step, std::int64_t micro_batch) const = 0;

  /// The evaluation batch of that number, from 0: the same for every seed, rank and world.
  virtual Batch evaluation_batch(std::int64_t index) const = 0;

  /// What it is, for people: `3 files, 1234567 bytes, 61440 of them held out`.
  virtual const std::string& description() const = 0;

  /// Tells other content apart; equal for the same files in another place.
  virtual const std::string& fingerprint() const = 0;
};

/// A stretch of the stream, cut into sequences.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t sequences = 0;       // that are taken from it in an epoch
  std::int64_t first_sequence = 0;  // of all
  std::int64_t largest_offset = 0;  // by which the first may begin later

  bool operator==(const Stretch&) const = default;
};

/// Text or tokens from files.
class Data : public BatchSource {
 public:
  /// Opens and splits the data; an `Error` says what is wrong: an empty file, fewer tokens than a sequence, a token
  /// that the vocabulary does not have, a held-out share that leaves nothing.
  explicit Data(const DataSettings& settings);

  Batch training_batch(std::int64_t step, std::int64_t micro_batch) const override;

  /// Beyond `evaluation_sequences()` sequences they repeat.
  Batch evaluation_batch(std::int64_t index) const override;

  /// Sequences in an epoch, and in the held-out part.
  std::int64_t training_sequences() const { return training_count_; }
  std::int64_t evaluation_sequences() const { return held_out_count_; }

  /// Where both kinds of sequences come from.
  const std::vector<Stretch>& training_stretches() const { return training_; }
  const std::vector<Stretch>& held_out_stretches() const { return held_out_; }

  const std::string& description() const override { return description_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  void check_vocabulary() const;
  void split();
  Batch cut(const std::vector<std::int64_t>& positions) const;
  std::int64_t training_position(std::int64_t sequence_index) const;

  DataSettings settings_;
  std::string standard_folder_;  // where no files were named
  TokenStream stream_;
  std::vector<Stretch> training_;
  std::vector<Stretch> held_out_;
  std::int64_t training_count_ = 0;
  std::int64_t held_out_count_ = 0;
  std::string description_;
  std::string fingerprint_;
};

/// Other text from a step on; evaluation is on that.
class ChangingData : public BatchSource {
 public:
  /// `at` is the first step of the second text.
  ChangingData(const DataSettings& first, const DataSettings& second, std::int64_t at);

  Batch training_batch(std::int64_t step, std::int64_t micro_batch) const override;
  Batch evaluation_batch(std::int64_t index) const override { return second_.evaluation_batch(index); }
  const std::string& description() const override { return description_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  Data first_;
  Data second_;
  std::int64_t at_;
  std::string description_;
  std::string fingerprint_;
};

/// The text that `then_data` names, where `first` is what comes before it.
DataSettings data_after_change(const DataSettings& first, const std::vector<std::string>& then_data);

/// Numbers of samples that a model makes by itself (models::StudentTeacher): each comes once. Files and vocabulary are
/// not looked at; evaluation has numbers of its own.
class SampleNumbers : public BatchSource {
 public:
  explicit SampleNumbers(const DataSettings& settings);

  Batch training_batch(std::int64_t step, std::int64_t micro_batch) const override;
  Batch evaluation_batch(std::int64_t index) const override;
  const std::string& description() const override { return description_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  DataSettings settings_;
  std::string description_ = "samples made by the model";
  std::string fingerprint_ = "samples";
};

}  // namespace gnmr::train
