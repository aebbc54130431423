// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, the same in tables, on axes and in sentences.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gnmr::report {

/// Four significant digits at most; `∞` and `NaN` where it is not finite.
std::string number_text(double value, int digits = 4);

/// The same, or a dash where there is none.
std::string number_text(const std::optional<double>& value);

/// A count with its digits in groups of three: 1,234,567.
std::string grouped(std::uint64_t value);

/// A large count in short: 1.23 M.
std::string short_count(double value);

/// A share as a percentage: 3.6 %.
std::string percent_text(double share);

/// A time in the unit that suits it: 12 s, 3 min 20 s, 2 h 5 min.
std::string duration_text(double seconds);

/// `1 unit`, `2 units`.
std::string counted(std::uint64_t count, std::string_view one, std::string_view many = {});

}  // namespace gnmr::report
