// fio's headers, which are C and expect to be the first and only ones. Include after everything else; only engine*.cpp
// may. What they define that C++ cannot live with is removed again.
#pragma once

// The C++ standard headers that fio's headers would otherwise reach inside extern "C", with min and max as macros.
#include <algorithm>
#include <atomic>
#include <string>

extern "C" {
#include <fio.h>
#include <fio_time.h>
#include <optgroup.h>
}
#undef min
#undef max
