#include "edge/edge-internal.h"

#include "test.h"

TEST(outside_text_cannot_become_markup)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);

	edge_escape(&out, STR("<a href=\"x\" on='y'>&amp;</a>"));
	ASSERT_STR(out.p, "&#60;a href=&#34;x&#34; on=&#39;y&#39;&#62;&#38;amp;&#60;/a&#62;");
}
