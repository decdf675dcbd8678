// penstock_model_canary_view: the model test with element views that take what they find in a frame
// without the second look at the page word. It must find wrong bytes.
//
// What views call to read is set aside under another name before they are included, so that
// everything else stays as it is.
#include <thread>

#include "penstock/file.hpp"
#include "penstock/group/racing_lane.hpp"

namespace penstock::engine {
namespace {

// Now and then the thread stops between look and load, as it may anywhere.
template <typename Group>
std::int64_t read_unchecked(const Group& g, const cache_view& c, const file_handle& f,
                            std::byte* to, std::uint64_t bytes, std::uint64_t offset) {
    thread_local std::uint64_t calls = 0;
    const std::uint64_t word = find_word(c, f, offset >> c.page_shift);
    const page_word seen = word != no_word ? load_for_read(&c.words[word]) : page_word{0};
    if (!is_valid(seen)) return read_file(g, c, f, to, bytes, offset);
    if (mix64(++calls) % 4 == 0) std::this_thread::yield();
    racing_lane{}.copy_out(to, c.frame_address(frame_of(seen)) + (offset & (c.page_bytes() - 1)),
                           bytes);
    return static_cast<std::int64_t>(bytes);
}

}  // namespace
}  // namespace penstock::engine

#define read_file read_unchecked
#include "penstock/view.hpp"
#undef read_file

#include "model/model_main.hpp"
#include "model/model_run.hpp"

int main(int count, char** words) {
    using namespace penstock::model;
    return run_canary<model_run<hesitant_lane>>(count, words);
}
