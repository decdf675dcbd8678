// penstock_model_canary_window: the model test over a cache in which a window outlives the file it
// belongs to: slots are taken down although they have a window, and the word that leads to it is
// believed whatever its generation. It must find wrong bytes.
//
// Both names are set aside before the engine is included, as in canary_main.cpp. Element views read
// as lanes and so break the lane's miss path of this program too, which is as well.
#define find_in_window checked_find_in_window
#include "penstock/engine/window.hpp"
#undef find_in_window

namespace penstock::engine {
namespace {

inline bool never_has_window(const cache_view&, std::uint32_t, std::uint32_t) { return false; }

inline const std::byte* find_in_window(const cache_view& c, std::uint32_t slot, std::uint32_t,
                                       std::uint64_t offset, window_word& word) {
    const window_word w = load_relaxed(&c.windows[slot]);
    if (w == 0) return nullptr;
    return checked_find_in_window(c, slot, static_cast<std::uint32_t>(w >> window_generation_shift),
                                  offset, word);
}

}  // namespace
}  // namespace penstock::engine

#define has_window never_has_window
#include "penstock/engine/retire.hpp"
#undef has_window

#include "model/model_main.hpp"
#include "model/model_run.hpp"

int main(int count, char** words) {
    using namespace penstock::model;
    return run_canary<model_run<hesitant_lane>>(count, words);
}
