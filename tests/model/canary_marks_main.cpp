// penstock_write_model_canary: the model test of writes with a lane that marks the bytes of a write
// before it stores them. A write-back in between takes the marks and sends the old bytes; it must
// be found out.
#include <thread>

#include "model/model_main.hpp"
#include "model/write_run.hpp"
#include "penstock/group/racing_lane.hpp"

namespace {

// The engine stores, syncs, marks, and syncs again (engine/dirty.hpp). Here the bytes are kept back
// until the second sync, with a break before it, as a thread may make anywhere.
struct late_lane : penstock::racing_lane {
    struct kept {
        std::byte* to = nullptr;
        const std::byte* from = nullptr;
        std::size_t bytes = 0;
        int syncs = 0;
    };
    static kept& of_thread() {
        thread_local kept instance;
        return instance;
    }
    void copy_store(std::byte* to, const std::byte* from, std::size_t bytes) const {
        of_thread() = {to, from, bytes, 0};
    }
    void sync() const {
        kept& last = of_thread();
        if (last.to == nullptr || ++last.syncs < 2) return;
        std::this_thread::yield();
        penstock::racing_lane::copy_store(last.to, last.from, last.bytes);
        last.to = nullptr;
    }
};

}  // namespace

int main(int count, char** words) {
    return penstock::model::run_canary<penstock::model::write_run<late_lane>>(count, words);
}
