# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The messages of the package tetrad.v1, as protoc made them when this was built."""
