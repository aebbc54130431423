// SPDX-License-Identifier: Apache-2.0
// gnmr_kernels_check [--small]: every kernel against its reference, on the GPU. A line a check; 1 where one failed, 77
// where there is no GPU.
#include <cstring>
#include <exception>

#include "gnmr/kernels/device.h"
#include "kernels/check.h"

int main(int count, char** arguments) {
  using namespace gnmr::kernels;
  if (!available()) {
    std::printf("no GPU\n");
    return 77;
  }
  testing::Checks checks(count > 1 && std::strcmp(arguments[1], "--small") == 0);
  try {
    testing::check_norms(checks);
    testing::check_adamw(checks);
    testing::check_signals(checks);
    testing::check_casts(checks);
    testing::check_rounding(checks);
    testing::check_row_errors(checks);
    testing::check_delayed_scales(checks);
    testing::check_unit_gather(checks);
    testing::check_gated_step(checks);
    testing::check_clipped_norms(checks);
    testing::check_tile_product(checks);
  } catch (const std::exception& error) {
    checks.report("no exception", error.what());
  }
  std::printf("%d failed\n", checks.failures());
  return checks.failures() == 0 ? 0 : 1;
}
