// SPDX-License-Identifier: Apache-2.0
#include "gnmr/commands.h"

int main(int argument_count, char** arguments) { return gnmr::app::run_program(argument_count, arguments); }
