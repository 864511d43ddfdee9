// fio's headers, which are C and expect to be the only ones. Include after everything else. config-host.h decides the
// layout of fio's structures and none of its headers includes it.
#pragma once

// The C++ standard headers that fio's headers would otherwise reach inside extern "C", with min and max as macros.
#include <algorithm>
#include <atomic>
#include <string>

extern "C" {
#include <config-host.h>

#include <fio.h>
#include <fio_time.h>
#include <optgroup.h>
}
#undef min
#undef max
