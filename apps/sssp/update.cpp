#include "update.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/whole_file.hpp"
#include "graph_file.hpp"
#include "made_numbers.hpp"

namespace penstock::sssp {

namespace {

constexpr std::uint64_t most_pages_at_once = 256;

class updater {
public:
    explicit updater(const update_request& what) : what_(what) {}
    ~updater() {
        if (mapped_ != nullptr) ::munmap(mapped_, bytes_);
        if (fd_ >= 0) ::close(fd_);
    }
    updater(const updater&) = delete;
    updater& operator=(const updater&) = delete;

    status run() {
        if (status s = open(); !s) return s;
        const page_choice chosen(shape_.edge_pages(), what_.percent, what_.seed, what_.round);
        const auto threads =
            static_cast<std::uint32_t>(std::clamp<std::uint64_t>(chosen.count(), 1, what_.threads));
        apps::first_error errors;
        apps::on_threads(threads, [&](std::uint32_t i) {
            errors.note(
                change(chosen, chosen.count() * i / threads, chosen.count() * (i + 1) / threads));
        });
        return errors.get();
    }

private:
    status failed(const char* doing) const {
        return {-errno, std::string("update: ") + apps::shown(what_.file) + ": " + doing + ": " +
                            error_text(-errno) + "; name a graph that you may write"};
    }

    status open() {
        graph_file graph;
        if (status s = open_graph(what_.file, graph); !s) return s;
        shape_ = graph.shape;
        bytes_ = shape_.file_bytes();
        start_ = weights_of_round(what_.seed, what_.round);
        fd_ = ::open(what_.file.c_str(), O_RDWR | O_CLOEXEC);
        if (fd_ < 0) return failed("open");
        if (!what_.by_store) return {};
        void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) return failed("mmap");
        mapped_ = static_cast<char*>(at);
        return {};
    }

    // One thread's part of the chosen pages. Those that follow each other are changed together.
    status change(const page_choice& chosen, std::uint64_t first, std::uint64_t end) const {
        std::vector<edge> room;
        for (std::uint64_t i = first, next = first; i < end; i = next) {
            const std::uint64_t page = chosen.page(i);
            for (next = i + 1; next < end && next - i < most_pages_at_once &&
                               chosen.page(next) == page + (next - i);)
                ++next;
            const std::uint64_t begin = page * edges_of_page,
                                count = std::min((page + next - i) * edges_of_page, shape_.edges) -
                                        begin;
            const std::uint64_t offset = shape_.edges_at() + begin * sizeof(edge);
            if (mapped_ != nullptr) {
                set_weights(reinterpret_cast<edge*>(mapped_ + offset), begin, count);
                continue;
            }
            room.resize(count);
            if (status s =
                    apps::read_exactly(what_.file, fd_, room.data(), count * sizeof(edge), offset);
                !s)
                return s;
            set_weights(room.data(), begin, count);
            if (status s =
                    apps::write_exactly(what_.file, fd_, room.data(), count * sizeof(edge), offset);
                !s)
                return s;
        }
        return {};
    }
    void set_weights(edge* edges, std::uint64_t begin, std::uint64_t count) const {
        for (std::uint64_t i = 0; i < count; ++i) edges[i].weight = weight_of(start_, begin + i);
    }

    const update_request& what_;
    graph_shape shape_;
    std::uint64_t bytes_ = 0, start_ = 0;
    int fd_ = -1;
    char* mapped_ = nullptr;
};

}  // namespace

status update_weights(const update_request& what) { return updater(what).run(); }

}  // namespace penstock::sssp
