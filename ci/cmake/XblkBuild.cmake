# How every folder of xblk declares its target: one library, its tests, its fuzzers, its benchmarks.
# A folder's CMakeLists.txt uses only these functions, so flags and sanitizers live in this one file.

set(XBLK_SANITIZE "" CACHE STRING "Sanitizers, as given to -fsanitize= (set by the presets)")
option(XBLK_FUZZ "Build libFuzzer targets (needs clang; set by the fuzz preset)" OFF)

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_program(XBLK_CCACHE ccache)
if(XBLK_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${XBLK_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${XBLK_CCACHE})
endif()
if(NOT XBLK_FUZZ)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  include(GoogleTest)
endif()

add_library(xblk_flags INTERFACE)
target_include_directories(xblk_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(xblk_flags INTERFACE
  -Wall -Wextra -Werror -Wno-missing-field-initializers  # designated initializers leave the rest at its default
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual>)
# GCC 12 sees overlaps in std::string::assign that are not there (GCC bug 105651, fixed in 13).
target_compile_options(xblk_flags INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
# Messages name files as the repository does, wherever it was built.
target_compile_options(xblk_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
target_link_libraries(xblk_flags INTERFACE Threads::Threads)
if(XBLK_SANITIZE)
  target_compile_options(xblk_flags INTERFACE -fsanitize=${XBLK_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(xblk_flags INTERFACE -fsanitize=${XBLK_SANITIZE} -fuse-ld=lld)
  if(XBLK_SANITIZE MATCHES undefined)
    target_compile_options(xblk_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
if(XBLK_SANITIZE)
  # Several files in one translation unit: parsing the headers is most of an unoptimised build. The release preset
  # compiles each file alone.
  set(CMAKE_UNITY_BUILD ON)
endif()
if(XBLK_FUZZ)
  # Coverage for libFuzzer in every library; the fuzz targets themselves add the driver.
  target_compile_options(xblk_flags INTERFACE -O1 -fsanitize=fuzzer-no-link)
endif()

# xblk_library(NAME [SOURCES a.cpp ...] [DEPS target ...] [PRIVATE_DEPS target ...])
# Without SOURCES the library is header-only.
function(xblk_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(A_SOURCES)
    add_library(${name} STATIC ${A_SOURCES})
    target_link_libraries(${name} PUBLIC xblk_flags ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE xblk_flags ${A_DEPS})
  endif()
endfunction()

# xblk_executable(NAME SOURCES a.cpp ... [DEPS target ...]): installed to bin.
function(xblk_executable name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE xblk_flags ${A_DEPS})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# xblk_test(NAME SOURCES a_test.cpp ... [DEPS target ...] [TIMEOUT seconds] [LABELS label ...] [APART])
# One gtest executable; each TEST is a ctest test. XBLK_BIN_DIR and XBLK_SOURCE_DIR are defined for tests
# that start the built programs or read files of the tree. APART: files whose helpers have the same names, so that
# they cannot share a translation unit under the sanitizers.
function(xblk_test name)
  cmake_parse_arguments(A "APART" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(XBLK_FUZZ)
    return()
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  add_executable(${name} ${A_SOURCES})
  if(NOT XBLK_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)  # compiles in two thirds of -O2's time; what ships is met by the system tests
  endif()
  target_link_libraries(${name} PRIVATE xblk_flags ${A_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(A_APART)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  endif()
  target_compile_definitions(${name} PRIVATE
    XBLK_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" XBLK_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "${A_LABELS}")
endfunction()

# xblk_machine_test(NAME SOURCES a_test.cpp ... [DEPS target ...]): for what few machines have (Xen). One ctest test with
# its own main(), which exits with 77 and one line where the machine cannot run it; ctest then shows it as skipped.
function(xblk_machine_test name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  if(XBLK_FUZZ)
    return()
  endif()
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE xblk_flags ${A_DEPS} GTest::gtest)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77 LABELS machine)
endfunction()

# xblk_benchmark(NAME SOURCES a_bench.cpp ... [DEPS target ...]): Google Benchmark; a tiny run is a test, so it cannot rot.
function(xblk_benchmark name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  if(XBLK_SANITIZE)
    return()
  endif()
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE xblk_flags ${A_DEPS} benchmark::benchmark benchmark::benchmark_main)
  add_test(NAME ${name}.smoke COMMAND ${name} --benchmark_min_time=0.001)
  set_tests_properties(${name}.smoke PROPERTIES TIMEOUT 120 LABELS bench)
endfunction()

# xblk_fuzzer(NAME SOURCES a_fuzz.cpp ... [DEPS target ...] CORPUS dir): built in the fuzz preset only.
# ctest runs the kept corpus and then fuzzes for XBLK_FUZZ_SECONDS.
# Target `fuzzers` builds them all and what they need, nothing else.
set(XBLK_FUZZ_SECONDS 10 CACHE STRING "Seconds each fuzzer runs under ctest")
add_custom_target(fuzzers)
function(xblk_fuzzer name)
  cmake_parse_arguments(A "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  if(NOT XBLK_FUZZ)
    return()
  endif()
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE xblk_flags ${A_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${name}.found)
  file(MAKE_DIRECTORY ${found})
  add_test(NAME ${name} COMMAND ${name} -max_total_time=${XBLK_FUZZ_SECONDS} -print_final_stats=1 ${found} ${A_CORPUS})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS fuzz)
endfunction()
