// Every header includes this before it needs the standard: of all that an older one makes of them
// this is the first message.
#pragma once

#if __cplusplus < 202002L
#error "Penstock needs C++20: give the compiler -std=c++20; nvcc and NVRTC take it too"
#endif
