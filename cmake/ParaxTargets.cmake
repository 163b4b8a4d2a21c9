# Flags every target of ours is built with. No -march: one binary starts on any x86-64 machine and
# chooses kernels at run time. No -ffast-math: it would make results depend on the compiler's mood.
add_library(parax_flags INTERFACE)
target_compile_options(parax_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
                                             -ffp-contract=off
                                             $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # GCC 12: false alarms on std::string
target_include_directories(parax_flags INTERFACE "${PROJECT_SOURCE_DIR}")
set(PARAX_TEST_TIMEOUT 300)
if(PARAX_SANITIZE)
  set(PARAX_TEST_TIMEOUT 1800)  # code is some ten times slower
  target_compile_options(parax_flags INTERFACE -fsanitize=${PARAX_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all -g1)
  target_link_options(parax_flags INTERFACE -fsanitize=${PARAX_SANITIZE})
endif()

# parax_library(<folder> SOURCES ... DEPS ...): the static library parax_<folder>.
function(parax_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(parax_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(parax_${name} PUBLIC parax_flags ${ARG_DEPS})
endfunction()

# parax_test(<folder> SOURCES ... DEPS ...): one test program a folder, each test known to ctest.
function(parax_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(test_${name} PRIVATE PARAX_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(PARAX_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC 12: false alarms in <regex>
    target_compile_options(test_${name} PRIVATE -Wno-maybe-uninitialized)
  endif()
  gtest_discover_tests(test_${name} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
                       DISCOVERY_TIMEOUT 120
                       # Threads that outnumber the cores must sleep while they wait, not spin.
                       PROPERTIES TIMEOUT ${PARAX_TEST_TIMEOUT} ENVIRONMENT OMP_WAIT_POLICY=PASSIVE)
endfunction()
