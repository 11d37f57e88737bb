async function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll("figure.chart").forEach((figure) => {
    const holder = make("div", {class: "plot"});
    figure.querySelector("figcaption").after(holder);
    const {group, chart} = figure.dataset;
    drawChart(holder, data.charts[Number(group)][Number(chart)], data.colours, 240);
  });
  const browser = document.getElementById("browser");
  if (!browser) return;
  const loading = document.getElementById("loading");
  loading.hidden = false;
  try {
    const samples = new Samples(await readColumns());
    browser.hidden = false;
    new Browser(samples, data.colours);
    loading.remove();
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    loading.textContent = `The samples cannot be read by this browser: ${error.message}`;
    throw error;
  }
}

start();
