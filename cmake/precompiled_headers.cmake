# Headers that the tests share, compiled once. The library and the programs do without: most of what their sources cost is what they make, not
# what they read, and their compilation still sees an include that is missing.
#
# penstock_precompiled_headers(NAME header ... [LIBRARIES l ...]): a target that compiles the headers. It is a program, because the compiler
# takes a precompiled header only for the flags that it was made with, and those of libraries are others.
function(penstock_precompiled_headers name)
  if(NOT PENSTOCK_PRECOMPILE_HEADERS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp "int main() {}\n")
  add_executable(${name} ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE penstock_build_options ${arg_LIBRARIES})
  # Without this option the compiler would put the text of the header back where ccache looks at a source.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  target_precompile_headers(${name} PRIVATE ${arg_UNPARSED_ARGUMENTS})
endfunction()

# penstock_use_precompiled_headers(TARGET NAME): what a target that was added with the same flags calls.
function(penstock_use_precompiled_headers target name)
  if(NOT PENSTOCK_PRECOMPILE_HEADERS)
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()
