// A mutex whose waiters look again for a moment before they sleep: for locks that are held for less
// than a microsecond and that all service threads want. With one that puts waiters to sleep at
// once, sixteen threads that opened files took eight times as long for each as one thread alone:
// what they waited for was being woken (bench/results/h100/2026-11-24-opens.txt).
//
// A lockable for std::lock_guard. glibc's own kind of mutex; elsewhere an ordinary one.
#pragma once

#include <pthread.h>

namespace penstock::host {

class adaptive_mutex {
public:
    adaptive_mutex() {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
#if defined(__GLIBC__)
        pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
        pthread_mutex_init(&mutex_, &kind);
        pthread_mutexattr_destroy(&kind);
    }
    ~adaptive_mutex() { pthread_mutex_destroy(&mutex_); }
    adaptive_mutex(const adaptive_mutex&) = delete;
    adaptive_mutex& operator=(const adaptive_mutex&) = delete;

    void lock() { pthread_mutex_lock(&mutex_); }
    void unlock() { pthread_mutex_unlock(&mutex_); }

private:
    pthread_mutex_t mutex_;
};

}  // namespace penstock::host
