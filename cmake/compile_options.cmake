# Flags of Penstock's own targets; nothing here reaches a project that uses Penstock.
add_library(penstock_build_options INTERFACE)

set(host_warnings -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND host_warnings -Wno-restrict)  # gcc 12 sees an overlap in "text" + std::string (its bug 105651)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A unity build includes each source, so gcc takes its anonymous namespaces for a header's.
  list(APPEND host_warnings -Wno-subobject-linkage)
endif()
if(PENSTOCK_WARNINGS_AS_ERRORS)
  list(APPEND host_warnings -Werror)
endif()
target_compile_options(penstock_build_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${host_warnings}>)

if(PENSTOCK_WITH_CUDA)
  target_compile_options(penstock_build_options INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall>)
endif()

if(PENSTOCK_SANITIZE)
  # -Wno-tsan: gcc cannot model fences; see base/atomic.hpp for why that is sound here.
  set(sanitize -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer)
  if(PENSTOCK_SANITIZE MATCHES "undefined")
    list(APPEND sanitize -fno-sanitize-recover=undefined)
    if(PENSTOCK_SANITIZE MATCHES "address")
      # A null pointer's use ends in AddressSanitizer's hands anyway, and what an object's size and type say it sees at the byte. An eighth less to compile.
      list(APPEND sanitize -fno-sanitize=null,object-size,vptr)
    endif()
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  if(PENSTOCK_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
  add_link_options(${sanitize})
endif()

if(CMAKE_BUILD_TYPE STREQUAL "Debug" OR PENSTOCK_SANITIZE)
  target_compile_definitions(penstock_build_options INTERFACE PENSTOCK_ASSERTIONS)
endif()
