// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlacedHeap: the first of many by some order, each of which may leave at any
// moment: a binary heap whose elements know their place.
//
// T has a `uint32_t` place, named by a member pointer; Before(a, b) says whether
// a comes before b. Allocates nothing within the capacity given. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/support/status_macros.h"

namespace tetrad {

template <typename T, uint32_t T::*kPlace, bool (*Before)(const T&, const T&)>
class PlacedHeap {
 public:
  explicit PlacedHeap(size_t capacity) { heap_.reserve(capacity); }

  T* first() const { return heap_.empty() ? nullptr : heap_.front(); }

  void Insert(T* element) {
    heap_.push_back(element);
    Rise(heap_.size() - 1);
  }

  // `element` must be inside.
  void Remove(T* element) {
    const size_t place = element->*kPlace;
    TETRAD_CHECK(place < heap_.size() && heap_[place] == element);
    Put(place, heap_.back());
    heap_.pop_back();
    if (place == heap_.size()) return;
    Rise(place);
    Sink(place);
  }

 private:
  void Put(size_t place, T* element) {
    heap_[place] = element;
    element->*kPlace = static_cast<uint32_t>(place);
  }
  void Rise(size_t place) {
    T* const element = heap_[place];
    while (place > 0 && Before(*element, *heap_[(place - 1) / 2])) {
      Put(place, heap_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    Put(place, element);
  }
  void Sink(size_t place) {
    T* const element = heap_[place];
    for (;;) {
      size_t child = 2 * place + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && Before(*heap_[child + 1], *heap_[child])) ++child;
      if (!Before(*heap_[child], *element)) break;
      Put(place, heap_[child]);
      place = child;
    }
    Put(place, element);
  }

  std::vector<T*> heap_;
};

}  // namespace tetrad
