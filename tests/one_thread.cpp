// Linked into tests that are not built under ThreadSanitizer because they have one thread
// (CMakeLists.txt): a second thread would race unseen.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// Defined here, it comes before that of the C library, for libraries as well.
extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
    std::fputs(
        "a thread begins in a test that says ONE_THREAD in its CMakeLists.txt: such tests are left "
        "out under ThreadSanitizer, so remove the word\n",
        stderr);
    std::abort();
}
