# SPDX-License-Identifier: Apache-2.0
"""Our own low path: quantization, GEMMs, amax history, and the layer as autograd and compilers see it."""
