// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// How large a graph of calls has to be for its time to be that of cold calls. Pure.
#pragma once

namespace tetrad::bars {

// How many sets of `bytes` each the calls go round: at least 3, together at least 200 MB.
int SetsFor(double bytes);
// How many calls a graph makes, a multiple of `sets`: at least 20, and as many as take
// a millisecond if each takes `least_us`, up to 200; a launch of a graph and its
// events take a few microseconds that are not to show.
int CallsFor(int sets, double least_us);

}  // namespace tetrad::bars
