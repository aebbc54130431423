// SPDX-License-Identifier: Apache-2.0
// A page from its parts: web/page.html filled in.
#pragma once

#include <string>

namespace gnmr::report {

/// What is put into the template.
struct Page {
  std::string title;
  std::string subtitle;
  std::string kind;
  std::string body;
  std::string payload;  // empty: the page is plain
  std::string program;
};

/// The whole file: nothing is loaded from anywhere, and no script runs but the one that was built in.
std::string page_html(const Page& page);

}  // namespace gnmr::report
