# SPDX-License-Identifier: Apache-2.0
"""Checks of calls, of models and of backends: the conformance suite, and the doctor that runs it."""
