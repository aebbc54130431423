# SPDX-License-Identifier: Apache-2.0
"""Several processes: their collectives, and which rank holds which piece of a unit."""
