#include "kernels/scalar/kernels.h"

namespace octalane::scalar {

std::string unavailable() { return {}; }

}  // namespace octalane::scalar
