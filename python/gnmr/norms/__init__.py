# SPDX-License-Identifier: Apache-2.0
"""Squared norms of gradients: one pass over them, on the host or on a device, and clipping by them."""
