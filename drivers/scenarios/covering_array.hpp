// Covering arrays: few rows in which any `strength` factors take every combination of their values together at least
// once. With 30 factors of 2 to 5 values, all pairs fit in some 30 rows; all combinations would be 10^14.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace xblk::scenarios {

using ArrayRow = std::vector<std::size_t>;  // a value's position for each factor

// `levels`: the number of values of each factor, at least `strength` factors. `strength`: 1 to 3. The same arguments
// give the same rows; another seed gives others.
std::vector<ArrayRow> covering_array(std::span<const std::size_t> levels, unsigned strength, std::uint64_t seed);

}  // namespace xblk::scenarios
