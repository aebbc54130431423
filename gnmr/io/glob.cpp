// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/glob.h"

#include <cstddef>

#include "gnmr/io/number_text.h"

namespace gnmr::io {

// Greedy with one point to come back to: a later star makes earlier ones final.
bool glob_matches(std::string_view glob, std::string_view name) {
  std::size_t g = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_name = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_name = n;
    } else if (g < glob.size() && (glob[g] == '?' || to_lower(glob[g]) == to_lower(name[n]))) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace gnmr::io
