// SPDX-License-Identifier: Apache-2.0
// A C++ program that uses the C++ interface of an installed gnmr; its argument is the path of a state file to write.
#include <gnmr/core/controller.h>
#include <gnmr/io/options_json.h>
#include <gnmr/io/state_file.h>

#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  gnmr::Controller controller({{.name = "a"}, {.name = "b"}}, gnmr::io::read_options(R"({"max_o": 1})"),
                              gnmr::norms_only());
  std::vector<double> norms{1, 1};
  for (int step = 0; step < 30; ++step) {
    controller.begin(step);
    if (step == 29) norms[0] = 50;
    controller.report({.step = step, .norms = norms});
  }
  if (controller.begin(30).recovered.size() != 1) return 1;
  gnmr::io::save_state(argv[1], controller.save());
  return gnmr::io::load_state(argv[1]).state == controller.save() ? 0 : 1;
}
