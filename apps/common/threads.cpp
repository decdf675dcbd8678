#include "common/threads.hpp"

#include <exception>
#include <thread>

#include "common/process.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

namespace {

// Threads that begin together, once all of them are there, or not at all.
class team_of_threads {
public:
    explicit team_of_threads(const std::function<void(std::uint32_t)>& body) : body_(body) {}
    ~team_of_threads() {
        if (gate_.load() == closed) begin(stays);
    }
    team_of_threads(const team_of_threads&) = delete;
    team_of_threads& operator=(const team_of_threads&) = delete;

    void add(std::uint32_t number) {
        threads_.emplace_back([this, number] {
            gate_.wait(closed);
            if (gate_.load() == open) run(number);
        });
    }
    // Returns when all are done; this thread is number 0 if it takes part.
    void work(bool takes_part) {
        begin(open);
        if (takes_part) run(0);
        threads_.clear();
        if (failure_ != nullptr) std::rethrow_exception(failure_);
    }

private:
    static constexpr int closed = 0, open = 1, stays = 2;

    void begin(int state) {
        gate_.store(state);
        gate_.notify_all();
    }
    void run(std::uint32_t number) {
        try {
            body_(number);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (failure_ == nullptr) failure_ = std::current_exception();
        }
    }

    const std::function<void(std::uint32_t)>& body_;
    std::atomic<int> gate_{closed};
    std::mutex mutex_;
    std::exception_ptr failure_;         // guarded by mutex_ while threads run
    std::vector<std::jthread> threads_;  // the last member: joined before the others end
};

}  // namespace

void on_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& body) {
    team_of_threads team(body);
    for (std::uint32_t i = 1; i < count; ++i) team.add(i);
    team.work(true);
}

void on_new_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& body) {
    team_of_threads team(body);
    for (std::uint32_t i = 0; i < count; ++i) team.add(i);
    team.work(false);
}

std::uint32_t thread_count(std::optional<std::uint32_t> wanted) {
    return wanted.value_or(std::max(1u, std::thread::hardware_concurrency()));
}

void first_error::note(status failed) {
    if (failed.ok()) return;
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(failed);
    failed_ = true;
}

bool first_error::stop() const { return failed_ || was_interrupted(); }

status first_error::get() const {
    std::lock_guard lock(mutex_);
    return status_.ok() ? not_interrupted() : status_;
}

}  // namespace penstock::apps
