// What tells a device's compiler something tells the host's nothing.
#pragma once

namespace octalane::cuda {

template <class Value>
void pin(Value&) {}

}  // namespace octalane::cuda
