// Plays the accesses on standard input through the buffer's core and prints what came of each, for
// comparison with naive_buffer.py:
//   player H G D TABLE ABSENT lru|clock [tail]
// Lines: r FILE PAGE CONTENT... (read), w (replace), m (write in place), p and u FILE PAGE (pin,
// unpin), f FILE (flush), d 0|1 0 (victims of the host go to the device or not). A content of 0 is
// alone. With `tail`, a demoted block enters the device's list at the tail: the canary.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "buffer/core/check.hpp"
#include "buffer/core/movement.hpp"
#include "buffer/core/core.hpp"
#include "buffer/core/types.hpp"

namespace {

using namespace penstock::buffer;

// Wrong on purpose: what came last goes first.
class tail_cache : public eviction_cache {
public:
    void enter(block_table& blocks, std::uint32_t number) {
        eviction_cache::enter(blocks, number);
        entered_.push_back(number);
    }
    void leave(block_table& blocks, std::uint32_t number) {
        eviction_cache::leave(blocks, number);
        std::erase(entered_, number);
    }
    template <typename MayGo>
    [[nodiscard]] std::uint32_t tail(const block_table&, const MayGo& may_go) const {
        for (std::size_t i = entered_.size(); i-- > 0;)
            if (may_go(entered_[i])) return entered_[i];
        return nothing;
    }

private:
    std::vector<std::uint32_t> entered_;
};

template <typename Core>
class player {
public:
    int play(const limits& most) {
        if (core_.make(most) != 0) return 2;
        contents_.resize(most.blocks_per_page);
        char kind = 0;
        while (std::cin >> kind) {
            found at = found::nowhere;
            const int result = step(kind, at);
            print(result, at);
            if (const char* const wrong = check(core_.inside()); wrong != nullptr) {
                std::cerr << wrong << "\n";
                return 1;
            }
        }
        return 0;
    }

private:
    int step(char kind, found& at) {
        page_ = {};
        std::cin >> page_.file;
        if (kind == 'f') return core_.flush(page_.file, moved_);
        std::cin >> page_.page;
        if (kind == 'd') return core_.set_demotes(page_.file != 0), 0;
        if (kind == 'p') return core_.pin(page_), 0;
        if (kind == 'u') return core_.unpin(page_), 0;
        for (content_id& content : contents_) {
            std::cin >> content.first;
            content = content.first == 0 ? content_id::alone() : content_id{content.first, 0};
        }
        if (kind == 'w') return core_.replace(page_, contents_.data(), moved_, at);
        const int touched = core_.touch(page_, moved_, at);
        if (touched != 0) return touched;
        found before;
        if (at == found::nowhere)
            return kind == 'm' ? core_.replace(page_, nullptr, moved_, before)
                               : core_.load(page_, contents_.data(), moved_);
        return kind == 'm' ? core_.mark_dirty(page_) : 0;
    }

    void print(int result, found at) {
        const auto& end = core_.inside();
        std::cout << (result == -EBUSY      ? "busy"
                      : at == found::host   ? "host"
                      : at == found::device ? "device"
                                            : "nowhere")
                  << ' ' << moved_.demoted << ' ' << moved_.promoted << ' ' << moved_.filled << ' '
                  << moved_.written_pages << ' ' << moved_.written_from_device << ' '
                  << moved_.dropped_pages << ' ' << end.pages.in_use() << ' '
                  << pages_with_sharing(end) << ' ' << end.blocks.in_use() - end.absent.size << ' '
                  << end.absent.size;
        for (std::uint32_t i = 0; i < contents_.size(); ++i)
            if (const block* const stored = core_.inside().block_of(page_, i);
                stored != nullptr && stored->where == side::absent)
                std::cout << " a";
            else if (stored != nullptr)
                std::cout << (stored->where == side::host ? " h" : " d") << stored->frame;
        std::cout << "\n";
    }

    Core core_;
    counts moved_;
    page_id page_;
    std::vector<content_id> contents_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7) return 2;
    limits most;
    std::uint32_t* const to[] = {&most.host_pages, &most.device_pages, &most.blocks_per_page,
                                 &most.pages, &most.absent_blocks};
    for (int i = 0; i < 5; ++i)
        *to[i] = static_cast<std::uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    most.files = 4;
    if (argc > 7) return player<core<lru_order, tail_cache>>().play(most);
    return std::string(argv[6]) == "clock" ? player<core<clock_order>>().play(most)
                                           : player<core<lru_order>>().play(most);
}
