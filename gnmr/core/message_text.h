// SPDX-License-Identifier: Apache-2.0
// Words in messages that every layer and program writes alike: near matches of names, counts with their nouns, numbers.
//
// Goals: a message about a name that is not known offers the one that was probably meant; `1 unit`, `2 units`.
// Non-goals: printing, translation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gnmr {

/// The known name that `text` was probably meant to be; empty where none is near.
///
/// Near is an edit distance (letters added, left out, changed, or two neighbours swapped) of at most a third of the
/// longer name, upper and lower case alike. The nearest wins, the first of several.
std::string_view near_match(std::string_view text, std::span<const std::string_view> known);

/// What a message about an unknown name ends with: `; did you mean 'train'?`, or nothing where no name is near.
std::string did_you_mean(std::string_view text, std::span<const std::string_view> known);

/// The same for any list of names.
template <class Names>
std::string did_you_mean(std::string_view text, const Names& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  return did_you_mean(text, std::span<const std::string_view>(views));
}

/// The same for any list, each of whose entries is turned into its name.
template <class Entries, class Name>
std::string did_you_mean(std::string_view text, const Entries& known, Name name_of) {
  std::vector<std::string_view> views;
  for (const auto& entry : known) views.push_back(name_of(entry));
  return did_you_mean(text, std::span<const std::string_view>(views));
}

/// The form of a noun that goes with a count; without `many` the plural has an s at its end.
std::string noun_for(std::uint64_t count, std::string_view one, std::string_view many = {});

/// A count and its noun: `1 unit`, `2 units`, `0 recoveries`.
std::string counted(std::uint64_t count, std::string_view one, std::string_view many = {});

/// A number in its shortest form that reads back the same.
std::string shortest_text(double value);

/// Throws the `Error` "[step 7] expected ...".
[[noreturn]] void reject_step(std::int64_t step, const std::string& what);

}  // namespace gnmr
