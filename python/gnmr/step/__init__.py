# SPDX-License-Identifier: Apache-2.0
"""One optimizer step: numbers, decision, reruns, switches, and what ends it early."""
