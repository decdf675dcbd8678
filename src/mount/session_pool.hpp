// The buffer's sessions, one for each thread that serves, lent for as long as a request takes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer/pool/manager.hpp"

namespace penstock::mount {

// Thread-safe. Ends before its manager, with nothing lent.
class session_pool {
public:
    // False: the manager does not give so many.
    bool fill(buffer::manager& all, unsigned count) {
        all_ = &all;
        for (unsigned i = 0; i < count; ++i) {
            idle_.push_back(all.open_session());
            if (idle_.back() == nullptr) return false;
        }
        return true;
    }

    class lent {
    public:
        explicit lent(session_pool& from) : from_(from), mine_(from.take()) {}
        ~lent() { from_.give(std::move(mine_)); }
        lent(const lent&) = delete;
        lent& operator=(const lent&) = delete;
        buffer::session* operator->() const { return mine_.get(); }

    private:
        session_pool& from_;
        std::unique_ptr<buffer::session> mine_;
    };

    // A session tells its hits when it ends, so unused ones are exchanged for new ones:
    // the counts are complete then, but for requests that are under way.
    void tell_hits() {
        const std::lock_guard hold(lock_);
        for (auto& one : idle_) {
            one.reset();
            one = all_->open_session();
        }
        std::erase(idle_, nullptr);
    }

private:
    std::unique_ptr<buffer::session> take() {
        std::unique_lock hold(lock_);
        given_back_.wait(hold, [&] { return !idle_.empty(); });
        auto out = std::move(idle_.back());
        idle_.pop_back();
        return out;
    }
    void give(std::unique_ptr<buffer::session> one) {
        {
            const std::lock_guard hold(lock_);
            idle_.push_back(std::move(one));
        }
        given_back_.notify_one();
    }

    buffer::manager* all_ = nullptr;
    std::mutex lock_;
    std::condition_variable given_back_;
    std::vector<std::unique_ptr<buffer::session>> idle_;  // guarded by lock_
};

}  // namespace penstock::mount
